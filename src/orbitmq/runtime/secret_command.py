"""Runs a program of the user that prints a secret, such as a password manager."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from typing import Final

from orbitmq.errors import OrbitError

MAX_BYTES: Final = 16 * 1024


class SecretCommandError(OrbitError):
    """The program gave no secret. The text names the failure, and contains nothing that the program
    printed."""


def printed_secret(command: str, timeout_s: float, *, name: str = "the secret command") -> str:
    """The one line that a program prints.

    The program is started without a shell. It has the standard input and the standard error of this process,
    so that it can ask for a passphrase.

    Args:
        command: the program and its arguments, quoted as for a shell.
        name: the program's name in errors.

    Raises:
        SecretCommandError: the program cannot be started, fails, takes too long, or prints anything else than
            one line.
    """
    try:
        return _printed(command, timeout_s)
    except _ProblemError as problem:
        raise SecretCommandError(f"{name} {problem}") from problem.__cause__


class _ProblemError(Exception):
    """The program's failure, as the end of a sentence."""


def _printed(command: str, timeout_s: float) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        raise _ProblemError("has a quotation mark that is not closed") from None
    if not words:
        raise _ProblemError("is empty")
    try:
        # The user's own command, from a file that only this user can read.
        process = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _ProblemError(f"cannot be started: {words[0]}: {reason}") from error
    try:
        printed, code = _run(process, timeout_s)
    except subprocess.TimeoutExpired:
        raise _ProblemError(f"was not done within {timeout_s:g} s and was ended") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code:
        raise _ProblemError(f"failed with exit code {code}")
    return _line(printed)


def _run(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, int]:
    """The output of the program, up to one byte more than the limit, and its exit code.

    Raises:
        subprocess.TimeoutExpired: the program takes too long.
        _ProblemError: the program prints more than is read.
    """
    out = process.stdout
    assert out is not None
    printed = bytearray()

    def read() -> None:
        while len(printed) <= MAX_BYTES and (piece := out.read(MAX_BYTES + 1 - len(printed))):
            printed.extend(piece)

    deadline = time.monotonic() + timeout_s
    # The output is read in a thread: a child of the program may hold it open after the program has ended.
    reader = threading.Thread(target=read, name="secret command", daemon=True)
    reader.start()
    reader.join(timeout_s)
    if reader.is_alive():
        raise subprocess.TimeoutExpired(process.args, timeout_s)
    out.close()
    if len(printed) > MAX_BYTES:
        raise _ProblemError(f"prints more than {MAX_BYTES} bytes: it must print the secret alone")
    return bytes(printed), process.wait(max(0.001, deadline - time.monotonic()))


def _line(printed: bytes) -> str:
    try:
        lines = printed.decode().splitlines()
    except UnicodeDecodeError:
        raise _ProblemError("prints no text in UTF-8") from None
    if not lines or not lines[0]:
        raise _ProblemError("prints nothing: it must print the secret")
    if len(lines) > 1:
        raise _ProblemError(f"prints {len(lines)} lines: it must print the secret alone")
    return lines[0]
