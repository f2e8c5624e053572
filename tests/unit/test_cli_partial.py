"""The output and the error when some brokers do not respond."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import pytest

from orbitmq import BrokerError, OrbitError
from orbitmq.admin import BrokerInfo, IncompleteError, Partial
from orbitmq.admin.answers import Answers, left_out
from orbitmq.cli import bench
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK
from orbitmq.cli.partial import done, tell_not_done, tell_not_shown, whole, without
from orbitmq.cli.view import View
from orbitmq.errors import NotAllReadError
from orbitmq.runtime import system_runtime
from orbitmq.transport.errors import ConnectError, ConnectionLostError, RequestTimeoutError

if TYPE_CHECKING:
    from orbitmq.cli.output import Tell
    from orbitmq.client.consumer.reader import Reader

NOBODY: list[tuple[BrokerInfo, int]] = []
A = BrokerInfo("c", "broker-a", 0, "h:1")
SILENT = left_out("broker-b", "h:2", RequestTimeoutError("no answer from h:2 in time", "h:2"), 5000)
REFUSES = left_out("broker-c", "h:3", BrokerError(1, "the disk is full", "h:3"), 5000)


async def fails(found: object) -> object:
    raise IncompleteError(Partial(found, (SILENT,)))


async def succeeds() -> str:
    return "all"


@pytest.mark.parametrize(
    ("error", "reason", "uncertain"),
    [
        (RequestTimeoutError("no answer from h:2 in time", "h:2"), "no answer in 2.5 s", True),
        (ConnectionLostError("connection to h:2 lost", "h:2"), "connection to h:2 lost", True),
        (ConnectError("cannot connect to h:2", "h:2"), "cannot connect to h:2", False),
        (BrokerError(1, None, "h:2"), "it answered code 1: no remark", False),
        (
            BrokerError(14, "a change of topics cannot be written", "h:2"),
            "it answered code 14: a change of topics cannot be written",
            True,
        ),
    ],
)
def test_who_is_left_out_says_why_and_whether_it_may_have_been_done(
    error: OrbitError, reason: str, uncertain: bool
) -> None:
    one = left_out("broker-b", "h:2", error, 2500)
    name = "broker-b" if "h:2" in reason else "broker-b at h:2"
    assert (str(one), one.uncertain) == (f"{name}: {reason}", uncertain)


def test_complete_answers_are_the_result() -> None:
    assert Answers(1, [(A, 7)], []).partial("found").whole() == "found"
    assert Answers(1, [(A, 7)], []).names == ["broker-a"]


def test_some_answers_are_a_result_that_is_not_whole() -> None:
    partial = Answers(2, [(A, 7)], [SILENT]).partial([7], "some")
    assert (partial.found, partial.left_out) == ([7], (SILENT,))
    with pytest.raises(IncompleteError, match=r"^some: broker-b at h:2: no answer in 5 s$") as caught:
        partial.whole()
    assert caught.value.partial == partial
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.partial.found) == (str(caught.value), [7])
    assert copy.left_out[0].reason == SILENT.reason


def test_no_answer_is_the_first_ones_own_error() -> None:
    with pytest.raises(RequestTimeoutError):
        Answers(2, NOBODY, [SILENT, REFUSES]).partial([])
    with pytest.raises(BrokerError):
        Answers(1, NOBODY, [SILENT]).beside([REFUSES]).partial([])


def test_a_broker_that_has_nothing_of_it_has_answered_too() -> None:
    with pytest.raises(IncompleteError):
        Answers(2, NOBODY, [SILENT]).partial([]).whole()


def test_what_is_there_is_shown_and_what_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(done(succeeds())) == ("all", ())
    assert asyncio.run(done(fails([1]))) == ([1], (SILENT,))
    assert tell_not_shown([SILENT, REFUSES], "its queues are") == EXIT_FAILED
    assert capsys.readouterr().err == (
        "broker-b at h:2: no answer in 5 s; its queues are not shown\n"
        "broker-c at h:3: it answered code 1: the disk is full; its queues are not shown\n"
    )
    assert tell_not_shown([], "its queues are") == EXIT_OK
    assert without([SILENT, REFUSES]) == ", without those of broker-b, broker-c"
    assert without([]) == ""
    assert View({"group": "g"}, left_out=[SILENT]).as_json() == {
        "group": "g",
        "left_out": [{"broker": "broker-b", "address": "h:2", "reason": "no answer in 5 s"}],
    }


def test_what_was_not_done_is_told_with_how_to_finish(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell_not_done([SILENT, REFUSES]) == EXIT_FAILED
    assert capsys.readouterr().err == (
        "broker-b at h:2: no answer in 5 s; it may still do it\n"
        "broker-c at h:3: it answered code 1: the disk is full; it was not done there\n"
        "to finish, run it again when all answer\n"
    )
    assert tell_not_done([]) == EXIT_OK
    assert capsys.readouterr().err == ""


def test_what_needs_all_brokers_is_not_begun_without_one() -> None:
    assert whole(Partial("all")) == "all"
    with pytest.raises(IncompleteError, match=r"nothing was done, .* broker-b at h:2: no answer in 5 s"):
        whole(Partial("some", (SILENT,)))


class HalfRead:
    """A reader that returns a part of a topic, because one broker did not send all of its messages."""

    async def __aenter__(self) -> HalfRead:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def batches(self) -> AsyncIterator[list[int]]:
        yield [1, 2, 3]
        raise NotAllReadError("T", {"broker-b": ConnectError("it stopped", "h:2")})


@pytest.mark.behaviour("MO-24")
def test_a_bench_that_could_not_read_all_back_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bench with missing messages must not end with exit code 0."""

    async def read(*arguments: object, **_: object) -> None:
        measured, tell = cast("tuple[bench.Measured, Tell]", arguments[-2:])
        reader = cast("Reader", HalfRead())
        await bench._receive(reader, system_runtime().clock, measured, tell)

    monkeypatch.setattr(bench, "_bench", read)
    assert bench.bench() == EXIT_FAILED
    printed = capsys.readouterr()
    assert "receive" in printed.out
    assert printed.err == "broker-b at h:2: it stopped; its messages are not shown\n"
