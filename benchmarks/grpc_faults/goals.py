"""The figures of the faults, and the goals for OrbitMQ's. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

HEADINGS: Final = ["fault", "figure", "OrbitMQ", "Apache", "ratio", "goal", "met"]
OURS, APACHE = "ours", "apache"

# Figures by fault and name; a text in place of a fault's figures is the reason why there are none.
Side = Mapping[str, Mapping[str, float] | str]


@dataclass(frozen=True)
class Figure:
    """A figure of a fault.

    Attributes:
        most: OrbitMQ's absolute limit; None if there is none.
        share: OrbitMQ's limit as a share of Apache's figure; None if there is none.
    """

    fault: str
    name: str
    title: str
    most: float | None = None
    share: float | None = None

    @property
    def goal(self) -> str:
        """The limits as text."""
        parts = [] if self.most is None else [f"{self.most:g}" if self.most == 0 else f"<= {self.most:g}"]
        parts += [] if self.share is None else [f"<= {self.share:g} of Apache's"]
        return ", ".join(parts)


FIGURES: Final = (
    Figure("killed", "elsewhere_s", "time until another consumer has its messages, s", share=0.25),
    Figure("slow", "twice", "messages that were delivered twice", most=0),
    Figure("lost answer", "next_try_s", "after that: time until it has all messages, s", share=0.5),
    Figure("lost answer", "out_of_order", "messages received out of order", most=0),
    Figure("lost answer", "twice", "messages received twice", most=0),
    Figure("broker killed", "lost", "messages lost", most=0),
    Figure("broker killed", "repeated", "transactions whose message is stored more than once", most=0),
    Figure("broker killed", "send_gap_s", "longest time between two successful sends, s", share=0.5),
    Figure("broker killed", "receive_gap_s", "longest time between two received messages, s", share=0.5),
    Figure("one dead", "not_sent", "messages that could not be sent, of 10", most=0),
    Figure("master lost", "lost", "messages lost", most=0),
    Figure("master lost", "remoting_send_gap_s", "remoting: longest time between two successful sends, s"),
    Figure("master lost", "send_gap_more_s", "gRPC: how much longer than over remoting, s", most=2),
    Figure(
        "master lost", "remoting_receive_gap_s", "remoting: longest time between two received messages, s"
    ),
    Figure("master lost", "receive_gap_more_s", "gRPC: how much longer than over remoting, s", most=2),
)
TITLES: Final = {
    "killed": "a consumer is killed while it handles messages",
    "slow": "messages are handled for minutes, and one of two consumers loses its network for 5 s",
    "lost answer": "a FIFO consumer gets no answers for 40 s",
    "broker killed": "a broker is killed under load and started again",
    "one dead": "a producer starts while one of two brokers is dead",
    "master lost": "a master is killed, its slave takes over, the master comes back",
}


def met(figure: Figure, ours: float | None, apache: float | None) -> bool | None:
    """Whether OrbitMQ keeps a figure's limits; None if the figure or its limit is missing."""
    if ours is None or (figure.most is None and (figure.share is None or apache is None)):
        return None
    within = figure.most is None or ours <= figure.most
    return within and (figure.share is None or apache is None or ours <= figure.share * apache)


def rows(sides: Mapping[str, Side]) -> list[list[str]]:
    """A line for each figure whose fault was played."""
    lines = []
    for figure in FIGURES:
        if not any(figure.fault in side for side in sides.values()):
            continue
        ours, apache = (value(sides, side, figure) for side in (OURS, APACHE))
        kept = met(figure, ours, apache)
        ratio = f"{ours / apache:.2f}" if ours is not None and apache else ""
        lines.append(
            [
                TITLES[figure.fault],
                figure.title,
                shown(ours),
                shown(apache),
                ratio,
                figure.goal,
                "" if kept is None else "yes" if kept else "**no**",
            ]
        )
    return lines


def value(sides: Mapping[str, Side], side: str, figure: Figure) -> float | None:
    """A figure of one side; None if it is missing."""
    found = sides.get(side, {}).get(figure.fault, "")
    return None if isinstance(found, str) else found.get(figure.name)


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}".rstrip("0").rstrip(".")


def reasons(sides: Mapping[str, Side]) -> Sequence[str]:
    """The reasons why a side has no figures of a fault."""
    names = {OURS: "OrbitMQ", APACHE: "Apache"}
    return [
        f"{TITLES[fault]}, {names[side]}: {found}"
        for side, faults in sides.items()
        for fault, found in faults.items()
        if isinstance(found, str)
    ]


def failures(sides: Mapping[str, Side]) -> Sequence[str]:
    """Each limit that OrbitMQ exceeds, and each fault that could not be played on its side."""
    found = [f"{TITLES[fault]}: {text}" for fault, text in sides[OURS].items() if isinstance(text, str)]
    for figure in FIGURES:
        ours, apache = (value(sides, side, figure) for side in (OURS, APACHE))
        if met(figure, ours, apache) is False:
            text = f"{figure.title}: {shown(ours)}, Apache {shown(apache)}, goal {figure.goal}"
            found.append(f"{TITLES[figure.fault]}: {text}")
    return found
