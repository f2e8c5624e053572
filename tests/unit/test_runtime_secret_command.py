"""A secret from the user's program: one line, and an error text for any other output."""

from __future__ import annotations

import sys
from shlex import join

import pytest

from orbitmq.runtime.secret_command import MAX_BYTES, SecretCommandError, printed_secret


def python(code: str) -> str:
    return join([sys.executable, "-c", code])


@pytest.mark.behaviour("CS-02")
def test_the_line_is_the_secret() -> None:
    assert printed_secret(python("print('p s:st ')"), 60) == "p s:st "
    assert printed_secret(python("import sys; sys.stdout.write('no line end')"), 60) == "no line end"


@pytest.mark.behaviour("CS-02")
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "is empty"),
        ("pass 'mq", "has a quotation mark that is not closed"),
        ("/no/such/program --x", "cannot be started: /no/such/program: No such file or directory"),
        (python("print('pssst'); raise SystemExit(3)"), "failed with exit code 3"),
        (python("print('pssst'); print('pssst')"), "prints 2 lines: it must print the secret alone"),
        (python("print()"), "prints nothing: it must print the secret"),
        (python("pass"), "prints nothing: it must print the secret"),
        (python("import sys; sys.stdout.buffer.write(b'pssst\\xff')"), "prints no text in UTF-8"),
        (python("while True: print('pssst' * 1000)"), f"prints more than {MAX_BYTES} bytes"),
    ],
)
def test_anything_else_is_a_sentence_without_the_secret(command: str, says: str) -> None:
    with pytest.raises(SecretCommandError) as raised:
        printed_secret(command, 60)
    assert str(raised.value).startswith(f"the secret command {says}")
    assert "pssst" not in str(raised.value)


@pytest.mark.behaviour("CS-02")
@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(600)",
        "import os, time; os.close(1); time.sleep(600)",
        # A child process that holds the output open longer than the program runs.
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'])",
    ],
)
def test_a_program_that_hangs_is_ended(code: str) -> None:
    with pytest.raises(SecretCommandError, match=r"was not done within 0\.2 s and was ended"):
        printed_secret(python(code), 0.2)
