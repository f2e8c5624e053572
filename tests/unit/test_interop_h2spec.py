"""What `make interop-grpc` makes of the report of h2spec."""

from __future__ import annotations

from pathlib import Path

from tests.interop.grpc_h2spec import EXCUSED, fault, outcomes

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


def test_an_excuse_has_to_be_needed() -> None:
    excused = dict.fromkeys(EXCUSED, "Timeout")
    assert not fault(excused | {"http2/6.5: Sends one": ""})
    assert fault(excused | {"http2/6.5: Sends one": "Timeout"}).endswith("http2/6.5: Sends one (Timeout)")
    first = next(iter(EXCUSED))
    assert fault(excused | {first: ""}) == f"1 of {len(EXCUSED)}: {first} passes and is excused"
