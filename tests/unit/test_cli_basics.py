"""The ``orbitmq`` command before it contacts a server: overview, wrong input, start time."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.cli.failures import EXIT_FAILED, EXIT_USAGE, UsageError, explain
from orbitmq.cli.main import COMMANDS, main
from orbitmq.cli.output import print_json, table
from orbitmq.cli.serve import own_address
from orbitmq.errors import BrokerError, UnknownOptionError, ValidationError
from orbitmq.runtime.secret_command import SecretCommandError
from orbitmq.settings.typed import ConfigError
from orbitmq.spark.errors import OptionError

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "orbitmq", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, **environment},
        check=False,
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_overview_imports_nothing_heavy() -> None:
    code = (
        "import sys, orbitmq.cli.main as m; m.main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    for module in ("asyncio", "cyclopts", "rich", "msgspec", "argparse"):
        assert f"'{module}'" not in done.stderr


def test_an_unknown_command_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brokr"]) == EXIT_USAGE
    assert capsys.readouterr().err == "orbitmq: there is no command 'brokr': did you mean 'broker'?\n"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples(name: str) -> None:
    done = run(name, "--help", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    # A wrapped line cannot be copied.
    examples = done.stdout.partition("xamples")[2].strip().splitlines()[1:]
    assert all(re.match(r" *(orbitmq|seq|tail) ", line) or not line for line in examples), examples
    assert f"orbitmq {name}" in done.stdout
    assert "xamples" in done.stdout
    # A shell ends a command at an unquoted semicolon.
    assert not re.search(r"-n [^' ]+;", done.stdout.partition("xamples")[2])


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["send", "topic"], "expected a body"),
        (["client", "show"], "orbitmq client: GROUP is missing (see 'orbitmq client show --help')"),
        (["topic", "create", "t", "--queues"], "--queues: expected a value (see"),
        (["send", "topic", "body", "--nosuch"], "--nosuch"),
        (["send", "topic", "body", "--count", "x"], "--count x: expected a whole number ("),
        (["send", "topic", "body", "--delay", "soon"], "--delay soon: expected a number ("),
        (["send", "topic", "body", "--tga", "x"], "there is no option --tga: did you mean --tag? ("),
        (["dlq", "redrive", "g", "--yes"], "there is no option --yes (see 'orbitmq dlq redrive --help')"),
        (["topic", "create", "t", "--queues", "many"], "(see 'orbitmq topic create --help')"),
        (["send", "topic", "body", "--property", "x"], "NAME=VALUE"),
        (["broker", "-p", "²"], "-p ²: expected a port number"),
        (["broker", "-p", "9" * 5000], "expected a port number"),
        (["dlq", "redrive", "g", "--rate", "²/s"], "--rate ²/s: expected messages a second"),
        (["group", "reset", "g", "t", "--offset", "5", "--queue", "b:²"], "--queue b:²: expected BROKER:ID"),
        (["group", "reset", "g", "t", "--to", "17940420000"], "has 11 digits: 13 are milliseconds"),
        (["receive", "t", "--from", "17940420"], "has 8 digits: 13 are milliseconds"),
        (["send", "topic", "body", "--property", "TRAN_MSG=true"], "--property TRAN_MSG: RocketMQ writes"),
        (
            ["receive", "topic", "--format", "%z"],
            "--format: %z (character 1) means nothing here; there are %t topic,",
        ),
        (["send"], "orbitmq send: TOPIC is missing (see"),
        (["acl", "allow", "app", "--topic", "orders"], "--topic orders: expected 2 values (see"),
        (["cluster", "list", "--watch", "x"], "unexpected argument: x (see"),
        (["up", "--brokers", "0"], "--brokers 0: expected 1 to 26"),
        (["up", "--replicas", "0"], "--replicas 0: expected 1 to 9"),
        (["broker", "-n", "here"], "-n: namesrvAddr=here: expected addresses as host:port"),
        (["quota", "set", "--topic", "t", "--in", "9999999GB/s"], "--in 9999999GB/s: expected at most"),
        (["generate", "alerts", "--job", ""], "--job is empty: expected the job_name of the scrapes"),
        (["up", "--set", "x"], "KEY=VALUE"),
        (["up", "--port", "65536"], "--port 65536: expected 0 to 65535"),
        (["broker", "-c", "/no/such/file"], "/no/such/file: No such file"),
        (["broker", "--set", "flushDiskType=NEVER"], "flushDiskType=NEVER: expected one of"),
        (["broker", "-p", "x"], "-p x"),
        (["broker", "--bogus"], "unrecognized arguments: --bogus (see 'orbitmq broker --help')"),
        (["nameserver", "--port", "99999"], "settings: listenPort=99999"),
        (["nameserver", "-c", os.devnull, "--port", "x"], "settings: listenPort=x: expected a whole number"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], names: str) -> None:
    done = run(*arguments)
    assert done.returncode == EXIT_USAGE
    assert names in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["broker", "--set", "bindAddress=203.0.113.1"], "203.0.113.1:10911 (bindAddress, listenPort): "),
        (["nameserver", "--set", "bindAddress=203.0.113.1"], "203.0.113.1:9876 (bindAddress, listenPort): "),
    ],
)
def test_an_address_of_another_machine_is_named_with_its_setting(
    arguments: list[str], text: str, tmp_path: Path
) -> None:
    """No machine has this address (TEST-NET-3)."""
    store = ["--set", f"storePathRootDir={tmp_path}"] if arguments[0] == "broker" else []
    done = run(*arguments, *store, HOME=str(tmp_path))
    assert done.returncode == EXIT_FAILED
    assert f"cannot listen on {text}Cannot assign requested address" in done.stderr
    assert "choose an address of this machine" in done.stderr


def test_a_store_that_cannot_be_made_is_named_with_its_setting() -> None:
    done = run("broker", "--set", "storePathRootDir=/proc/store", "-n", "127.0.0.1:9876")
    assert done.returncode == EXIT_FAILED
    assert (
        done.stderr == "orbitmq broker: cannot use storePathRootDir=/proc/store: No such file or directory\n"
    )


def test_namesrv_addr_of_the_environment_is_named_in_its_error_and_yields_to_set() -> None:
    done = run("broker", "-p", NAMESRV_ADDR="here")
    assert done.stderr.startswith("orbitmq broker: $NAMESRV_ADDR: namesrvAddr=here: expected addresses")
    done = run("broker", "-p", "--set", "namesrvAddr=a:1", NAMESRV_ADDR="b:2")
    assert "namesrvAddr=a:1\n" in done.stdout


@pytest.mark.parametrize("server", ["broker", "nameserver"])
def test_a_config_typo_is_named_with_file_and_line(server: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("# typo below\nlistenPort = many\n")
    done = run(server, "-c", str(file))
    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith(f"orbitmq {server}: {file}: line 2: listenPort=many: expected")


def test_print_config_shows_rocketmq_keys(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-x\nlistenPort=12345\n")
    done = run("broker", "-c", str(file), "-p")
    assert done.returncode == 0
    assert "brokerName=broker-x" in done.stdout.splitlines()
    assert "listenPort=12345" in done.stdout.splitlines()
    assert "flushDiskType=SYNC_FLUSH" in done.stdout.splitlines()
    assert "listenPort=9876" in run("nameserver", "-p").stdout.splitlines()


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (UsageError("say it so"), "say it so", EXIT_USAGE),
        (BlockingIOError(errno.EAGAIN, "locked", "/store/lock"), "in use by another broker", EXIT_FAILED),
        (OSError(errno.EADDRINUSE, "error while binding on port 9876"), "choose another port", EXIT_FAILED),
        (OSError(errno.ENOSPC, "No space left on device", "/store"), "the disk is full", EXIT_FAILED),
        (BrokerError(17, "no topic\nof this name", "h:1"), "no topic of this name", EXIT_FAILED),
        (ValidationError("queues must be 1 or more"), "queues must be 1 or more", EXIT_USAGE),
        (UnknownOptionError("there is no option tag"), "there is no option tag", EXIT_USAGE),
        (ConfigError("listenPort", "x", "a number"), "listenPort", EXIT_USAGE),
        (OptionError("option startsFrom is unknown"), "startsFrom", EXIT_USAGE),
        (SecretCommandError("the secret command is empty"), "is empty", EXIT_FAILED),
        (KeyError("x"), "unexpected KeyError", EXIT_FAILED),
        (ImportError("x", name="orbitmq.a", path="/src/a.cpython.so"), "run make build", EXIT_FAILED),
        (ModuleNotFoundError("x", name="pyspark.sql"), "pip install 'orbitmq[spark]'", EXIT_USAGE),
    ],
)
def test_errors_become_one_line(error: Exception, line: str, code: int) -> None:
    text, exit_code = explain(error)
    assert line in text
    assert "\n" not in text
    assert exit_code == code


@pytest.mark.parametrize(
    "words", [["replay", "orders", "again"], ["dlq", "billing"], ["audit", "orders", "--from", "1h"]]
)
def test_a_job_without_spark_says_how_to_get_it(words: list[str]) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from orbitmq.cli.main import main; "
        f"sys.exit(main({['spark', *words]}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert done.stderr == "orbitmq spark: this needs pyspark: pip install 'orbitmq[spark]'\n"
    assert done.returncode == EXIT_USAGE


def test_numbers_stand_to_the_right() -> None:
    assert table(["name", "n"], [["a", 5], ["bcdef", 10]]) == "name    n\na       5\nbcdef  10"
    assert table(["name"], []) == "name"


def test_json_is_one_document_or_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["é"]}, one_line=True)
    assert capsys.readouterr().out == '{"a": ["é"]}\n'
    print_json({"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_own_address_is_an_address() -> None:
    assert own_address([]).count(".") == 3
    assert own_address(["no-such-host.invalid:9876"]).count(".") == 3


def test_tasks_that_fail_side_by_side_are_one_line() -> None:
    inner = ExceptionGroup("inner", [BrokerError(13, "no", "a:1"), ValueError("x")])
    assert explain(ExceptionGroup("outer", [inner])) == ("a:1 answered code 13: no", EXIT_FAILED)
