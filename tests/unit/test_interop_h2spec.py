"""The result of `make interop-grpc` from the report of h2spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.grpc_h2spec import ANSWERS_S, EXCUSED, fault, judged, outcomes

REPORT = """<testsuites>
  <testsuite package="http2/6.5" name="6.5. SETTINGS">
    <testcase package="http2/6.5" classname="Sends one" time="0.1"/>
    <testcase package="http2/6.5" classname="Sends two"><skipped/></testcase>
    <testcase package="http2/6.5" classname="Sends three">
      <error>Expect:
GOAWAY Frame
Actual:
Timeout</error>
    </testcase>
    <testcase package="http2/6.5" classname="Sends four"><failure>Timeout</failure></testcase>
  </testsuite>
</testsuites>"""


def test_a_report_has_the_fault_of_each_test_that_ran(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert outcomes(tmp_path / "report.xml") == {
        "http2/6.5: Sends one": "",
        "http2/6.5: Sends three": "Expect: GOAWAY Frame Actual: Timeout",
        "http2/6.5: Sends four": "Timeout",
    }


def test_a_report_may_have_the_data_of_a_ping_frame(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        REPORT.replace("Timeout</failure>", "opaque_data:h2spec\0\0</failure>")
    )
    assert outcomes(tmp_path / "report.xml")["http2/6.5: Sends four"] == "opaque_data:h2spec??"


def test_what_failed_runs_again_with_its_section_and_a_longer_wait() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    rounds: list[tuple[Sequence[str], int]] = []

    def passes_in_the_third(sections: Sequence[str], answer_s: int) -> dict[str, str]:
        rounds.append((sections, answer_s))
        if not sections:
            return excused | {"http2/7: one": "reset", "http2/7: two": "", "http2/8: three": ""}
        return {"http2/7: one": "" if len(rounds) == 3 else "reset", "http2/7: two": "reset"}

    assert not fault(judged(passes_in_the_third))
    assert rounds == [((), ANSWERS_S[0]), (["http2/7"], ANSWERS_S[1]), (["http2/7"], ANSWERS_S[2])]


def test_what_always_fails_is_a_fault() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")

    def fails(sections: Sequence[str], answer_s: int) -> dict[str, str]:
        return ({} if sections else excused) | {"http2/7: one": "reset"}

    assert fault(judged(fails)) == f"1 of {len(EXCUSED) + 1}: http2/7: one (reset)"


def test_an_excused_test_that_passes_by_chance_runs_again() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    first = next(iter(EXCUSED))
    section = first.partition(":")[0]

    def passes_at_first(sections: Sequence[str], answer_s: int) -> dict[str, str]:
        return (
            {name: text for name, text in excused.items() if name.startswith(section)}
            if sections
            else (excused | {first: ""})
        )

    assert not fault(judged(passes_at_first))


def test_an_excuse_has_to_be_needed() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    assert not fault(excused | {"http2/6.5: Sends one": ""})
    assert fault(excused | {"http2/6.5: Sends one": "Timeout"}).endswith("http2/6.5: Sends one (Timeout)")
    first = next(iter(EXCUSED))
    assert fault(excused | {first: ""}) == f"1 of {len(EXCUSED)}: {first} (passes and is excused)"
