"""The audit log of a server: the changes that users made, and the requests that were refused.

Each line is one JSON object. The line of a change is on the disk before the change is made: if the disk
refuses the line, the change is refused. The lines of refusals are limited in number, so that clients without
rights neither fill the disk nor push the changes out of the kept files.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from orbitmq.auth.changes import Sights, name_of, text
from orbitmq.auth.gate import Sender
from orbitmq.durations import instant
from orbitmq.errors import StartError
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background, every
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

# The most kinds of refusals with separate lines in one period. A day of refusals then has about 30 MB, and
# 100 MB with the longest names.
MAX_REFUSALS: Final = 20
PERIOD_S: Final = 60.0
STOP_S: Final = 2.0
# The most changes that wait for the disk at a time, each for one or two writes. Refusals have the same limit.
MAX_WAITING: Final = 100
PERMITTED, MADE, FAILED, REFUSED = "permitted", "made", "failed", "refused"


Make: TypeAlias = Callable[[], Command | Awaitable[Command | None] | None]


@dataclass(frozen=True, slots=True)
class AuditPlace:
    """The files of the audit log.

    Attributes:
        path: the file that gets the lines.
        max_bytes: the size at which the file is renamed and a new one begun; 0 if another program renames it.
        backups: how many renamed files are kept.
    """

    path: str
    max_bytes: int
    backups: int


@dataclass(frozen=True, slots=True)
class AuditRefusal:
    """One kind of refusal.

    Attributes:
        claimed: the user that the request names; empty without one.
        origin: the client's host.
        request: the code of the request, or the name of a gRPC method, or "HA link".
        why: the remark of the refusal.
    """

    claimed: str
    origin: str
    request: int | str
    why: str

    def plain(self) -> dict[str, Any]:
        """The fields of the refusal in a line."""
        if isinstance(self.request, int):
            what: dict[str, Any] = {"code": self.request, "request": name_of(self.request)}
        else:
            what = {"request": self.request}
        return {"claimed": text(self.claimed), "from": self.origin, **what, "why": text(self.why)}


class Audit:
    """Writes the audit log.

    The file is opened for each line, so that logrotate may rename it at any time.

    Args:
        sights: describes the targets of changes, and their state.
    """

    def __init__(self, runtime: Runtime, place: AuditPlace, sights: Sights) -> None:
        self._runtime = runtime
        self._place = place
        self._sights = sights
        self._writing = asyncio.Lock()
        self._waiting = 0
        self._number = 0
        self._refused: Counter[AuditRefusal] = Counter()
        self._others = 0
        self._background = Background("audit log")
        self._log = LogLimiter(log)

    def start(self) -> None:
        """Write the line about the server's start.

        Raises:
            StartError: the file cannot be written.
        """
        try:
            self._write(self._lines([{"event": "start", "pid": self._runtime.host.pid}]))
        except OSError as error:
            raise StartError(
                f"cannot write auditLogFile={self._place.path}: {error.strerror or error}"
            ) from error
        self._background.spawn(every(self._runtime.clock, PERIOD_S, self._count), "count refusals")

    async def stop(self) -> None:
        """Write the counted refusals, unless the disk hangs."""
        await self._background.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._write_lines(self._counted())

    async def end_work(self) -> None:
        """Stop writing at once."""
        await self._background.stop()

    # -- changes -----------------------------------------------------------------------------------------

    async def change(
        self, command: Command, sender: Sender | None, origin: str, make: Make
    ) -> Command | None:
        """The answer of ``make`` to a request in :data:`CHANGES`, with a line before and after the change.

        Args:
            sender: the sender of the request; None if the request is not signed.
            origin: the peer's address.

        Raises:
            RemotingError: the audit log cannot be written, so ``make`` is not called; or ``make`` raised it.
        """
        self._number += 1
        who: dict[str, Any] = {"event": "change", "id": self._number, **_names(sender, origin)}
        who |= {"code": command.code, "request": name_of(command.code)}
        about = self._sights.targets(command)
        await self._before({**who, **about, "verdict": PERMITTED})
        if "target" in about:
            who["target"] = about["target"]
        state = self._sights.state(command)
        # Another change may have been made since the state was read for the first line.
        seen = {} if state == about.get("before") else {"before": state}
        try:
            answer = make()
            if isawaitable(answer):
                answer = await answer
        except RemotingError as error:
            await self._after(who | seen, error.code, error.remark)
            raise
        except Exception as error:
            await self._after(who | seen, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            raise
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            await self._after(who | seen, answer.code, answer.remark or "")
        else:
            after = {} if state is None else {"after": self._sights.state(command)}
            await self._write_lines([{**who, **seen, **after, "verdict": MADE}])
        return answer

    async def _before(self, line: dict[str, Any]) -> None:
        """Write the line before a change.

        Raises:
            RemotingError: the line cannot be written, so the change is refused.
        """
        if self._waiting >= MAX_WAITING:
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} changes wait for the audit log, the limit"
            )
        self._waiting += 1
        try:
            await self._append([line])
        except OSError as error:
            self._not_written(error)
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                "the change is refused, as the audit log cannot be written, "
                f"auditLogFile={self._place.path}: {error.strerror or error}",
            ) from error
        finally:
            self._waiting -= 1

    async def _after(self, line: dict[str, Any], answer: int, why: str) -> None:
        await self._write_lines([{**line, "verdict": FAILED, "answer": int(answer), "why": text(why)}])

    # -- refusals ----------------------------------------------------------------------------------------

    def refused(self, refusal: AuditRefusal) -> None:
        """Write a refusal: the first of its kind at once, further ones as a count, once a minute."""
        if refusal in self._refused:
            self._refused[refusal] += 1
        elif len(self._refused) < MAX_REFUSALS and len(self._background) < MAX_WAITING:
            # The count begins after the first refusal, which has its own line.
            self._refused[refusal] = 0
            self._background.spawn(self._write_lines([self._line_of(refusal, 1)]), "write a refusal")
        else:
            self._others += 1

    async def _count(self) -> None:
        await self._write_lines(self._counted())

    def _counted(self) -> list[dict[str, Any]]:
        """The lines for the period that ends: the counts of repeated kinds, and the count of other kinds."""
        lines = [self._line_of(refusal, count) for refusal, count in self._refused.items() if count]
        if self._others:
            lines.append({"event": "other refusals", "count": self._others, "verdict": REFUSED})
        self._refused.clear()
        self._others = 0
        return lines

    def _line_of(self, refusal: AuditRefusal, count: int) -> dict[str, Any]:
        return {"event": "refusal", **refusal.plain(), "count": count, "verdict": REFUSED}

    # -- the file ----------------------------------------------------------------------------------------

    async def _write_lines(self, entries: list[dict[str, Any]]) -> None:
        """Write lines about past events; if the disk refuses them, the server's log gets a warning."""
        if entries:
            try:
                await self._append(entries)
            except OSError as error:
                self._not_written(error)

    def _not_written(self, error: OSError) -> None:
        self._log.write(
            logging.ERROR,
            "audit log not written",
            "the audit log %s cannot be written, changes are refused: %s",
            self._place.path,
            error.strerror or error,
        )

    async def _append(self, entries: list[dict[str, Any]]) -> None:
        data = self._lines(entries)
        async with self._writing:
            await self._runtime.threads.run(self._write, data)

    def _lines(self, entries: Iterable[dict[str, Any]]) -> bytes:
        now = instant(self._runtime.clock.now_ms())
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return "".join(json.dumps({"time": time, **entry}) + "\n" for entry in entries).encode()

    def _write(self, data: bytes) -> None:
        files, place = self._runtime.files, self._place
        if place.max_bytes and files.exists(place.path):
            size_bytes = files.size_bytes(place.path)
            if size_bytes and size_bytes + len(data) > place.max_bytes:
                self._rotate()
        files.append(place.path, data, private=True)

    def _rotate(self) -> None:
        files, place = self._runtime.files, self._place
        for number in range(place.backups, 0, -1):
            older = f"{place.path}.{number}"
            newer = f"{place.path}.{number - 1}" if number > 1 else place.path
            if files.exists(newer):
                files.rename(newer, older)


def _names(sender: Sender | None, origin: str) -> dict[str, str]:
    if sender is None:
        return {"user": "", "from": origin}
    if not sender.passed_by:
        return {"user": sender.user.name, "from": origin}
    through = f"{sender.passed_by} at {origin}"
    return {"user": sender.user.name, "from": text(sender.host), "through": through}
