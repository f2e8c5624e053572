"""The result of `make interop-grpc E2E=` from Maven's reports of two runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.servers import PeerUnavailableError
from tests.interop.grpc_e2e import copied, difference, outcomes, repeated

REPORT = """<testsuite name="a.b.FirstTest">
  <testcase name="passes" classname="a.b.FirstTest" time="0.1"/>
  <testcase name="fails" classname="a.b.FirstTest">
    <failure message="three are missing&#10;of ten" type="x">trace</failure>
  </testcase>
  <testcase name="breaks" classname="a.b.FirstTest"><error type="x">no route
    at line 3</error></testcase>
  <testcase name="waits" classname="a.b.FirstTest"><skipped/></testcase>
</testsuite>"""


def test_reports_have_the_fault_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "TEST-a.b.FirstTest.xml").write_text(REPORT)
    (tmp_path / "TEST-a.b.OtherTest.xml").write_text(
        '<testsuite><testcase name="passes" classname="a.b.OtherTest"/></testsuite>'
    )
    assert outcomes(tmp_path) == {
        "FirstTest.passes": "",
        "FirstTest.fails": "three are missing",
        "FirstTest.breaks": "no route",
        "OtherTest.passes": "",
    }
    assert not outcomes(tmp_path / "none")


def test_what_failed_is_repeated_by_method_or_class() -> None:
    found = {"A.one": "", "A.two": "no", "B.": "no route", "A.three": "no"}
    assert repeated(found) == "A#two+three,B"
    assert not repeated({"A.one": ""})


def test_only_what_passes_at_apaches_counts() -> None:
    there = {"both": "", "neither": "no", "theirs": "no", "ours": "", "absent": ""}
    here = {"both": "", "neither": "no", "theirs": "", "ours": "two are missing"}
    assert difference(here, there) == (
        "2 tests fail here and pass at Apache's: absent: did not run; ours: two are missing"
    )
    assert not difference({"both": "", "neither": "other"}, {"both": "", "neither": "no"})
    assert difference({}, there) == "0 tests ran here, 5 at Apache's"


def test_the_suite_is_copied_and_made_to_run_on_this_jdk(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailableError, match=r"java/e2e/pom\.xml is not there"):
        copied(tmp_path, tmp_path / "copy")
    suite = tmp_path / "java" / "e2e"
    suite.mkdir(parents=True)
    (suite / "pom.xml").write_text("<argLine>-Xmx1024m -XX:MaxPermSize=256m</argLine>")
    (suite.parent / "pom.xml").write_text("<version>1.18.8</version>")
    copy = copied(tmp_path, tmp_path / "copy")
    assert (copy / "e2e" / "pom.xml").read_text() == "<argLine>-Xmx1024m</argLine>"
    assert (copy / "pom.xml").read_text() == "<version>1.18.36</version>"
