"""``--rate``: no more than a number of rows a second pass, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from orbitmq.spark.jobs import throttle

RATE = 100


class ScriptedClock:
    """Time passes only while code pauses, or when the test moves it."""

    def __init__(self) -> None:
        self.now = 5000.0

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ScriptedClock:
    made = ScriptedClock()
    monkeypatch.setattr(throttle, "this_worker", lambda: SimpleNamespace(clock=made, pause=made.pause))
    return made


def pieces(rows: int, *, batches: int = 1) -> Iterator[pa.RecordBatch]:
    each = rows // batches
    whole = (pa.record_batch({"n": range(low, low + each)}) for low in range(0, rows, each))
    return throttle._at_rate(RATE)(whole)


@pytest.mark.parametrize("batches", [1, 4, 200], ids=["one batch", "some", "hardly more than a row each"])
def test_rows_pass_at_their_rate_and_in_their_order(clock: ScriptedClock, batches: int) -> None:
    began, passed = clock.now, []
    for piece in pieces(400, batches=batches):
        # The rows of a tenth of a second may pass at once.
        assert len(passed) <= (clock.now - began) * RATE + 1e-6
        assert piece.num_rows <= RATE / throttle.PIECES_PER_SECOND
        passed += piece.column("n").to_pylist()
    assert passed == list(range(400))
    assert clock.now - began == pytest.approx(400 / RATE, abs=1 / throttle.PIECES_PER_SECOND)


def test_a_slow_reader_is_not_held_up_further(clock: ScriptedClock) -> None:
    began = clock.now
    for _ in pieces(400):
        clock.now += 0.2
    assert clock.now - began == pytest.approx(400 / 10 * 0.2)


def test_after_a_standstill_at_most_a_second_is_made_up_for(clock: ScriptedClock) -> None:
    flow = pieces(1000)
    next(flow)
    clock.now += 60
    resumed, passed = clock.now, 0
    for piece in flow:
        if clock.now > resumed:
            break
        passed += piece.num_rows
    assert passed == pytest.approx(throttle.CATCH_UP_S * RATE, abs=2 * RATE / throttle.PIECES_PER_SECOND)
