"""Properties shared by all commands: letters, help texts, defaults and a golden file of their JSON form."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App
from cyclopts.argument import Argument

from orbitmq.cli.main import AS_ROCKETMQ, BROKERS, COMMANDS

TESTS = Path(__file__).resolve().parents[1]
GOLDEN = TESTS / "sockets" / "golden_cli"
# The letters of all commands; servers have those of mqnamesrv and mqbroker.
LETTERS = {
    "-F": "--format",
    "-H": "--property",
    "-a": "--all",
    "-b": "--brokers",
    # A server's configuration file, as for the server itself.
    "-c": "--config, --count",
    "-d": "--dir",
    "-f": "--follow",
    "-g": "--group",
    "-i": "--in-flight",
    "-k": "--key",
    "-m": "--messages",
    "-n": "--name-servers",
    "-p": "--port",
    "-q": "--queues",
    "-r": "--replicas",
    "-s": "--size",
    "-t": "--topic",
    "-y": "--yes",
}


def commands() -> dict[str, list[Argument]]:
    """The parameters of every command of every family, by the command's words."""
    found: dict[str, list[Argument]] = {}
    for name, (module, _) in COMMANDS.items():
        if name not in AS_ROCKETMQ:
            found |= of_family(name, import_module(module).app)
    return found | of_family("broker", import_module(BROKERS).app)


def of_family(name: str, *apps: App) -> dict[str, list[Argument]]:
    """The parameters of a family's commands; families may contain families."""
    members = [word for word in apps[-1] if not word.startswith("-")]
    if not members:
        return {name: parameters(*apps)}
    found: dict[str, list[Argument]] = {}
    for word in members:
        found |= of_family(f"{name} {word}", *apps, apps[-1][word])
    return found


def parameters(*apps: App) -> list[Argument]:
    """The parameters of a command, as its help shows them."""
    with apps[0].app_stack(apps):
        found = apps[-1].assemble_argument_collection(parse_docstring=True)
    return [argument for argument in found if argument.show]


ALL = commands()
HELPS = {f"{words} {argument.name}": argument for words, own in ALL.items() for argument in own}


def test_a_letter_means_the_same_in_every_command() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for own in ALL.values():
        for argument in own:
            for letter in (name for name in argument.names if re.fullmatch(r"-\w", name)):
                found[letter] |= {name for name in argument.names if name.startswith("--")}
    assert {letter: ", ".join(sorted(names)) for letter, names in found.items()} == LETTERS


def default_shown(argument: Argument) -> bool:
    """Whether the help text gets its default from the command's signature."""
    shown = argument.show_default
    return bool(shown(argument.field_info.default) if callable(shown) else shown)


@pytest.mark.parametrize("name", HELPS)
def test_the_help_of_a_parameter_is_a_sentence_with_its_default_once(name: str) -> None:
    text = str(HELPS[name].parameter.help or "")
    defaults = text.count("Default:") + default_shown(HELPS[name])
    is_seconds = "float" in str(HELPS[name].field_info.annotation)
    assert re.fullmatch(r"['A-Z].*[.)]|.* k8s://\.\.\.", text, re.DOTALL), text
    assert len(text.split()) >= 3, text
    assert defaults <= 1, text
    assert "econds" in text or not is_seconds, "the unit is missing"


@pytest.mark.parametrize("words", ALL)
def test_a_command_has_a_golden_file_of_its_json_form(words: str) -> None:
    name = words.replace(" ", "-")
    assert (GOLDEN / f"{name}.json").exists(), f"add a check({name!r}, ...) to a test"


def test_every_golden_file_is_checked() -> None:
    tests = [TESTS / "sockets" / "test_cli_json.py", TESTS / "spark" / "test_spark_json.py"]
    checked = set(re.findall(r'check\(\s*"([\w-]+)"', "".join(path.read_text() for path in tests)))
    assert checked == {path.stem for path in GOLDEN.glob("*.json")}


@pytest.mark.parametrize("words", ALL)
def test_every_command_can_print_json(words: str) -> None:
    names = {name for argument in ALL[words] for name in argument.names}
    assert "--json" in names
