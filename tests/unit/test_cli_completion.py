"""``orbitmq completion``: the completions that a shell offers for the start of a word."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from orbitmq.cli.main import COMMANDS, main


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def offered(script: str, tmp_path: Path, *words: str) -> list[str]:
    """The completions that bash offers for the last word."""
    path = tmp_path / "orbitmq"
    path.write_text(script)
    line = shlex.join(["orbitmq", *words])
    code = (
        f"source {shlex.quote(str(path))}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        f"_orbitmq; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return [word.strip() for word in done.stdout.split()]


@pytest.mark.behaviour("CS-06")
def test_commands_and_options_are_offered(script: str, tmp_path: Path) -> None:
    assert set(offered(script, tmp_path, "")) >= set(COMMANDS)
    assert offered(script, tmp_path, "gro") == ["group"]
    assert offered(script, tmp_path, "group", "la") == ["lag"]
    assert offered(script, tmp_path, "group", "lag", "--js") == ["--json"]
    assert "--context" in offered(script, tmp_path, "topic", "list", "--co")
    assert offered(script, tmp_path, "completion", "f") == ["fish"]
    assert offered(script, tmp_path, "mqadmin", "clusterL") == ["clusterList"]
    assert offered(script, tmp_path, "mqadmin", "updateTopic", "--read") == ["--readQueueNums"]
    assert offered(script, tmp_path, "mqadmin", "updateTopic", "--cl") == ["--clusterName"]
    assert offered(script, tmp_path, "mqadmin", "topicList", "--name") == ["--namesrvAddr"]


@pytest.mark.behaviour("CS-06")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
