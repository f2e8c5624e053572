"""What `make interop-grpc` makes of the report of h2spec."""

from __future__ import annotations

from pathlib import Path

from tests.interop.grpc_h2spec import EXCUSED, best, fault, outcomes

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


def test_what_fails_in_one_round_and_passes_in_the_next_has_passed() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    first = excused | {"http2/7: one": "reset", "http2/7: two": ""}
    second = excused | {"http2/7: one": "", "http2/7: two": "reset"}
    rounds = iter([first, second, first])
    assert not fault(best(rounds))
    assert next(rounds) is first, "a round without a fault is the last one"
    assert fault(best([first, first])).startswith("1 of")


def test_an_excuse_has_to_be_needed() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    assert not fault(excused | {"http2/6.5: Sends one": ""})
    assert fault(excused | {"http2/6.5: Sends one": "Timeout"}).endswith("http2/6.5: Sends one (Timeout)")
    first = next(iter(EXCUSED))
    assert fault(excused | {first: ""}) == f"1 of {len(EXCUSED)}: {first} passes and is excused"
