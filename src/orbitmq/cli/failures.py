"""Errors as one line for the user at the terminal, with the exit code of each."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable

from orbitmq.cli.tls_words import as_options

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

DEBUG = "ORBITMQ_DEBUG"
# Reports why a command failed, from its name, the line and the exit code; returns the final exit code.
Tell = Callable[[str, str, int], int]
# Names of the error classes for wrong input: on the command line, in a variable or in a file. They are
# compared by name, since importing each class's module would slow down all other commands.
_WRONG_INPUT = {"ConfigError", "OptionError", "ValidationError"}
# The packages of orbitmq[spark]; without them the jobs of `orbitmq spark` cannot be imported.
_OF_SPARK = ("pyspark", "pyarrow", "pandas")


class UsageError(Exception):
    """The command line or a configuration file is wrong; the text says what to change."""


def explain(error: BaseException) -> tuple[str, int]:
    """The error as one line, if possible with a remedy, and its exit code."""
    error = first_of(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, UsageError):
        return str(error), EXIT_USAGE
    if isinstance(error, ImportError) and (error.path or "").endswith(".so") and _of_us(error.name):
        return "the compiled modules are older than their source: run make build", EXIT_FAILED
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in _OF_SPARK:
        return f"this needs {missing}: pip install 'orbitmq[spark]'", EXIT_USAGE
    if isinstance(error, OSError) and not _ours(error):
        return _explain_os_error(error), EXIT_FAILED
    if _ours(error):
        classes = {each.__name__ for each in type(error).__mro__}
        code = EXIT_USAGE if classes & _WRONG_INPUT else EXIT_FAILED
        return _one_line(as_options(str(error))) or type(error).__name__, code
    return (
        f"unexpected {type(error).__name__}: {_one_line(str(error))} (set {DEBUG}=1 to see where)",
        EXIT_FAILED,
    )


def first_of(error: BaseException) -> BaseException:
    """The first error of a group: concurrent tasks usually fail for the same reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def report(command: str, error: BaseException, tell: Tell | None = None) -> int:
    """Report ``error`` as one line and return the exit code. ``tell``: the reporter; None for
    standard error.
    """
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    line, code = explain(error)
    return code if code == EXIT_INTERRUPTED else (tell or to_errors)(command, line, code)


def to_errors(command: str, line: str, code: int) -> int:
    """Print why a command failed to standard error; returns its exit code."""
    print(f"orbitmq {command}: {line}", file=sys.stderr)
    return code


def _ours(error: BaseException) -> bool:
    return _of_us(type(error).__module__)


def _of_us(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "orbitmq"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _explain_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if isinstance(error, BlockingIOError):
        return f"{where}the folder is in use by another broker"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{_one_line(error.strerror or str(error))}: another program listens there; choose another port"
        )
    if error.errno == errno.ENOSPC:
        return f"{where}the disk is full"
    return f"{where}{_one_line(error.strerror or str(error))}"


def text_of(path: str) -> str:
    """The text of a file that the user has named.

    Raises:
        UsageError: the file cannot be read, or is not UTF-8 text.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
