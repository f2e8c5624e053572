// Draws the charts of a page with uPlot, and asks for the page's values every few seconds.
"use strict";

(() => {
  const COLOURS = ["#2f7fd0", "#d9822b", "#2e9e5b", "#c0504d", "#8a63d2", "#1a9ba1", "#b5489b", "#8c7a3d"];
  const probe = document.createElement("span");
  document.body.append(probe);

  // Colours of the style sheet depend on light and dark.
  function colour(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  // Ten minutes up to the newest point, however few points there are.
  function lastMinutes(plot) {
    const newest = plot.data[0].at(-1) ?? 0;
    return [newest - 600, newest];
  }

  function options(names, width) {
    const line = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--muted"), grid: line, ticks: line };
    return {
      width,
      height: 220,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { x: { range: lastMinutes }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [axis, { ...axis, size: 64, values: (_plot, values) => values.map((one) => one.toLocaleString("en")) }],
      series: [
        { label: "UTC", value: "{HH}:{mm}:{ss}" },
        ...names.map((label, at) => ({ label, stroke: COLOURS[at % COLOURS.length], width: 2, points: { size: 4 } })),
      ],
    };
  }

  function draw(figure, chart) {
    const place = figure.querySelector(".plot");
    const names = Object.keys(chart.lines);
    const data = [chart.times, ...names.map((name) => chart.lines[name])];
    figure.classList.toggle("without", chart.times.length === 0);
    if (figure.plot && figure.names === names.join("\n")) {
      figure.plot.setData(data);
      return;
    }
    if (figure.plot) figure.plot.destroy();
    figure.names = names.join("\n");
    figure.plot = new uPlot(options(names, place.clientWidth), data, place);
  }

  const figures = [...document.querySelectorAll("figure.chart")];
  for (const figure of figures) draw(figure, JSON.parse(figure.dataset.lines));

  addEventListener("resize", () => {
    for (const figure of figures) figure.plot.setSize({ width: figure.querySelector(".plot").clientWidth, height: 220 });
  });

  const page = document.querySelector("main").dataset;
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(page.source);
      if (answer.status === 401) clearInterval(timer);
      if (!answer.ok) return;
      const found = await answer.json();
      for (const figure of figures) if (found[figure.dataset.name]) draw(figure, found[figure.dataset.name]);
    } catch {
      // The console is away; the next turn asks again.
    }
  }, page.seconds * 1000);
})();
