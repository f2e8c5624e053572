"""``orbitmq audit``: reads the audit logs of brokers and name servers from their files."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, BinaryIO, Final

from cyclopts import Parameter

from orbitmq.cli.app import Flag, flag, make_app
from orbitmq.cli.audit_entries import (
    FAILED,
    PERMITTED,
    REFUSED,
    DamagedLineError,
    Entry,
    Joined,
    Wanted,
    in_words,
    parsed,
)
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.times import time_ms
from orbitmq.cli.view import Line
from orbitmq.runtime.log_output import escaped
from orbitmq.runtime.system import system_runtime

app = make_app(
    "audit",
    "The audit log of a broker or name server: who has changed what, and who was refused.",
    """
orbitmq audit show /var/lib/orbitmq/broker-a/audit.log
orbitmq audit show audit.log --since 2h --user ops
orbitmq audit show audit.log --target orders
orbitmq audit show audit.log --refused --follow
tail -1000 /data/mq/audit.log | orbitmq audit show - --failed --json
""",
)

# An audit line has two states of 8 KiB at most, 100 targets and some short texts.
MOST_LINE_BYTES: Final = 1024 * 1024
LOOK_S: Final = 0.5


@app.command
@command
def show(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    since: str | None = None,
    until: str | None = None,
    user: str | None = None,
    target: str | None = None,
    refused: Flag = False,
    failed: Flag = False,
    follow: Annotated[bool, flag(None, "--follow", "-f")] = False,
) -> Views:
    """Print the changes and refusals of an audit log, the oldest first; with the files that were renamed
    because of their size (audit.log.1 and so on). A change is one entry, at the time when it was permitted.

    Args:
        file: The file, audit.log in the store of a broker; - for standard input.
        since: Only entries that began at this time or later (2026-11-21T14:00, UTC, or milliseconds, 13
            digits), or within this span before now (10m; s, m, h, d).
        until: Only entries that began before this time, in the same form.
        user: Only changes of this user, and refusals of requests that gave the name.
        target: Only changes of the topic, group, user or setting with this name; also as Topic:orders.
        refused: Only requests that were refused.
        failed: Only changes that failed, or whose outcome was not written.
        follow: Continue with new entries until Ctrl-C, even after the file is renamed.
    """
    if refused and failed:
        raise UsageError("--refused and --failed exclude each other")
    if follow and file == "-":
        raise UsageError("--follow: standard input is read to its end anyway")
    verdicts = {REFUSED} if refused else {FAILED, PERMITTED} if failed else ()
    wanted = Wanted(
        None if since is None else time_ms(since, "--since"),
        None if until is None else time_ms(until, "--until"),
        user,
        target,
        frozenset(verdicts),
    )
    return _shown(file, wanted, follow=follow)


async def _shown(file: str, wanted: Wanted, *, follow: bool) -> AsyncGenerator[Line, None]:
    joined = Joined()
    async for place, raw in _lines(file, follow=follow):
        try:
            line = parsed(raw.decode())
        except ValueError as error:
            why = str(error) if isinstance(error, DamagedLineError) else "no text in UTF-8"
            yield Line(note=f"orbitmq audit: {place} is left out: {why}", failed=True)
            continue
        for entry in joined.add(line):
            if wanted(entry):
                yield _line(entry)
    for entry in joined.rest():
        if wanted(entry):
            yield _line(entry)


def _line(entry: Entry) -> Line:
    return Line(entry, escaped(in_words(entry)))


async def _lines(file: str, *, follow: bool) -> AsyncIterator[tuple[str, bytes]]:
    """The lines of all files of an audit log, the oldest first, each with its file and line number."""
    if file == "-":
        for line in _whole("standard input", sys.stdin.buffer):
            yield line
        return
    source = _opened(file)  # opened before the older files, so that a rename meanwhile loses no line
    try:
        for older in reversed(_renamed(file)):
            with _opened(older) as part:
                if not _same(part, source):
                    for line in _whole(older, part):
                        yield line
        if not follow:
            for line in _whole(file, source):
                yield line
            return
        while True:
            async with aclosing(_followed(file, source)) as lines:
                async for line in lines:
                    yield line
            source.close()
            source = _opened(file)
    finally:
        source.close()


def _opened(name: str) -> BinaryIO:
    return open(name, "rb")


def _renamed(file: str) -> list[str]:
    """The renamed files, the newest first."""
    found: list[str] = []
    while os.path.exists(name := f"{file}.{len(found) + 1}"):
        found.append(name)
    return found


def _whole(name: str, source: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """The lines up to the end. An overlong line is returned in parts, none of which is valid."""
    number = 0
    while line := source.readline(MOST_LINE_BYTES):
        number += 1
        yield f"{name}:{number}", line


async def _followed(file: str, source: BinaryIO) -> AsyncGenerator[tuple[str, bytes], None]:
    """The lines that a server appends to a file, until another file has its name."""
    clock = system_runtime().clock
    number, begun = 1, b""
    while True:
        line = source.readline(MOST_LINE_BYTES)
        begun += line
        if begun.endswith(b"\n") or len(begun) >= MOST_LINE_BYTES:
            yield f"{file}:{number}", begun
            number, begun = number + 1, b""
        elif not line:
            if _is_over(file, source):
                # The lines that the server wrote before it renamed the file.
                for place, rest in _whole(file, source):
                    yield place, begun + rest
                    begun = b""
                return
            await clock.sleep(LOOK_S)


def _is_over(file: str, source: BinaryIO) -> bool:
    """Whether the log was rotated: the name belongs to another file, or the file was cut."""
    try:
        with _opened(file) as now:
            return not _same(now, source) or os.fstat(now.fileno()).st_size < source.tell()
    except FileNotFoundError:
        return False  # the log is between its rename and the new file


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
