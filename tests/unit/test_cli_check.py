"""The results of ``orbitmq check``: the state, the line, the exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitmq.admin import BrokerInfo, BrokerState
from orbitmq.admin.answers import left_out
from orbitmq.cli.check import Figure, State, _problems, _view, _where
from orbitmq.cli.main import main
from orbitmq.transport.errors import RequestTimeoutError

A0 = BrokerInfo("c", "a", 0, "h0:1")
A1 = BrokerInfo("c", "a", 1, "h1:1")
MASTER = BrokerState(A0, "master", log_end=100)
SLAVE = BrokerState(A1, "slave", log_end=100, in_sync=True)
SILENT = left_out("b", "h:2", RequestTimeoutError("no answer", "h:2"), 5000)


@pytest.mark.behaviour("CS-03")
def test_the_line_has_the_number_and_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    view = _view("lag", [], "billing is 1,207 behind", [Figure("lag", 1207, "", 1000, 100000)])
    assert view.show(as_json=False) == State.WARNING
    assert capsys.readouterr().out == "WARNING: billing is 1,207 behind | lag=1207;1000;100000\n"
    assert str(Figure("age", 41, "s")) == "age=41s"
    assert str(Figure("age", 41, "s", critical=60)) == "age=41s;;60"


@pytest.mark.behaviour("CS-03")
def test_a_number_at_its_limit_is_within_it() -> None:
    states = [Figure("lag", value, "", 10, 20).state for value in (10, 11, 20, 21)]
    assert states == [State.OK, State.WARNING, State.WARNING, State.CRITICAL]


@pytest.mark.behaviour("CS-03")
@pytest.mark.parametrize(("value", "state"), [(5, State.UNKNOWN), (15, State.WARNING), (25, State.CRITICAL)])
def test_a_broker_that_does_not_answer_makes_it_unknown_unless_it_is_worse(value: int, state: State) -> None:
    view = _view("lag", [], "text", [Figure("lag", value, "", 10, 20)], [SILENT])
    assert view.code == state
    assert "b at h:2: no answer in 5 s; not counted" in view.lines[0]
    assert view.as_json()["left_out"] == [{"broker": "b", "address": "h:2", "reason": "no answer in 5 s"}]


@pytest.mark.behaviour("CS-03")
def test_a_stroke_in_a_name_does_not_begin_the_numbers() -> None:
    view = _view("lag", [], f"g is 3 behind{_where({'a|b': 3})}", [Figure("lag", 3)])
    assert view.lines[0] == "OK: g is 3 behind in a/b | lag=3"


def test_the_worst_topics_are_named() -> None:
    assert _where({}) == _where({"t": 0}) == ""
    assert _where({"t": 3, "u": 0}) == " in t"
    assert _where({"t": 3, "u": 1200}) == " in u (1,200), t (3)"
    topics = {name: number for number, name in enumerate("abcdef")}
    assert _where(topics) == " in f (5), e (4), d (3) and 2 other topics"


@pytest.mark.behaviour("CS-03")
def test_what_is_wrong_with_brokers() -> None:
    assert _problems([MASTER, SLAVE]) == []
    assert _problems([replace(MASTER, role="fenced master"), SLAVE]) == []
    [behind] = _problems([MASTER, replace(SLAVE, in_sync=False)])
    assert behind == (State.WARNING, "a (id 1) at h1:1 is not in sync")
    [acting] = _problems([replace(SLAVE, role="acting master", in_sync=None)])
    assert acting == (State.WARNING, "a has no master, a slave acts for it")
    [lost] = _problems([SLAVE])
    assert lost == (State.CRITICAL, "a has no master")
    [dumb] = _problems([replace(MASTER, problem="no answer from h0:1 in time"), SLAVE])
    assert dumb == (State.CRITICAL, "a (id 0) does not answer: no answer from h0:1 in time")
    [refusing] = _problems([replace(MASTER, problem="h0:1 does not permit it", refuses=True), SLAVE])
    assert refusing == (State.UNKNOWN, "a (id 0) refuses: h0:1 does not permit it")


@pytest.mark.behaviour("CS-03")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lag", "g"], "--warn"),
        (["lag", "g", "--warn", "x", "--critical", "9"], "--warn"),
        (["lag", "g", "--warn", "10", "--critical", "9"], "--warn 10 is more than --critical 9"),
        (["lag", "g", "--warn", "-1", "--critical", "9"], "expected 0 or more"),
        (["dlq", "--since", "soon"], "--since soon: expected a time"),
        (["broker", "--at-least", "-1"], "--at-least -1: expected 0 or more"),
        (["cert", "--warn", "5", "--critical", "6"], "--critical 6 is more than --warn 5"),
        (["cert"], "TLS is off: give --ca of 'orbitmq context create' or ORBITMQ_TLS_CA"),
        (["nonsense"], "nonsense"),
        (["lag", "g", "--warn", "1", "--critical", "9"], "127.0.0.1:1"),
        (["disk"], "127.0.0.1:1"),
    ],
)
def test_a_check_that_cannot_be_made_is_unknown(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert main(["check", *words]) == State.UNKNOWN
    out, err = capsys.readouterr()
    assert out.startswith("UNKNOWN: ")
    assert says in out
    assert len(out.splitlines()) == 1
    assert err == ""
