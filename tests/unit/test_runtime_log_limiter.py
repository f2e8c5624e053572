"""Log lines that peers cause are limited, and the missing ones are counted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.runtime.log_limiter import LogLimiter

log = logging.getLogger("orbitmq.test.limiter")

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == log.name]


async def test_one_line_a_second_of_each_kind_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)

    limiter = LogLimiter(log)
    for number in range(1000):  # ten seconds
        limiter.write(logging.INFO, "bad request", "bad request %d", number)
        if number % 500 == 0:
            limiter.write(logging.WARNING, "disconnected", "disconnecting %s", number)
        await asyncio.sleep(0.01)
    await asyncio.sleep(5)
    lines = lines_of(caplog)
    bad = [line for line in lines if line.startswith("bad request")]
    assert bad[0] == "bad request 0"
    assert len(bad) == 11
    counted = sum(int(line.split(": ")[1].split()[0]) for line in bad[1:])
    assert counted + 1 == 1000
    assert bad[-1].endswith("the last: bad request 999")
    assert [line for line in lines if line not in bad] == ["disconnecting 0", "disconnecting 500"]


async def test_a_kind_silent_for_a_second_is_written_at_once_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)

    limiter = LogLimiter(log)
    for number in range(3):
        limiter.write(logging.INFO, "rare", "rare %d", number)
        await asyncio.sleep(1.5)
    assert lines_of(caplog) == ["rare 0", "rare 1", "rare 2"]


async def test_the_first_of_a_second_carries_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log)
    for _ in range(3):
        try:
            raise KeyError("k")
        except KeyError as error:
            limiter.write(logging.ERROR, "failed with KeyError", "%s: request failed", "h:1", error=error)
    await asyncio.sleep(2)
    with_trace = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in with_trace] == ["h:1: request failed"]
    assert (
        lines_of(caplog)[1] == "failed with KeyError: 2 more within a second, the last: h:1: request failed"
    )
