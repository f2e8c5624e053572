"""``orbitmq context``, and the cluster that a command connects to."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.certificates import Authority

from orbitmq import Credentials, Tls
from orbitmq.cli import contexts
from orbitmq.cli.failures import EXIT_FAILED, EXIT_USAGE, UsageError
from orbitmq.cli.main import main
from orbitmq.cli.where import servers_of
from orbitmq.errors import ValidationError
from orbitmq.runtime.secret_command import SecretCommandError


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts, which does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NAMESRV_ADDR", contexts.VARIABLE, "ORBITMQ_TLS", "ORBITMQ_TLS_CA", "ORBITMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "orbitmq" / "contexts.json"


def created(name: str, *options: str, address: str = "mq-1:9876") -> None:
    assert main(["context", "create", name, "-n", address, *options]) == 0


@pytest.mark.behaviour("CS-01")
def test_the_cluster_is_that_of_the_nearest_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert servers_of(None, None).addresses == "127.0.0.1:9876"
    created("one", address="one:1")
    created("two", address="two:2;three:3")
    assert servers_of(None, None).addresses == "one:1"
    assert servers_of(None, "two").addresses == "two:2;three:3"
    assert servers_of("other:4", None).addresses == "other:4"
    assert main(["context", "use", "two"]) == 0
    assert (servers_of(None, None).addresses, servers_of(None, None).context) == ("two:2;three:3", "two")
    monkeypatch.setenv("NAMESRV_ADDR", "variable:5")
    assert servers_of(None, None).addresses == "variable:5"
    assert servers_of(None, "one").addresses == "one:1"
    monkeypatch.setenv(contexts.VARIABLE, "one")
    assert servers_of(None, None).addresses == "one:1"
    assert servers_of("other:4", None).context == ""
    with pytest.raises(UsageError, match="--name-servers and --context both say where"):
        servers_of("other:4", "one")
    with pytest.raises(UsageError, match="--context none: there is no such context; there are: one, two"):
        servers_of(None, "none")
    with pytest.raises(UsageError, match="--context is empty"):
        servers_of(None, "")
    monkeypatch.setenv(contexts.VARIABLE, "gone")
    with pytest.raises(UsageError, match=r"\$ORBITMQ_CONTEXT gone: there is no such context"):
        servers_of(None, None)


@pytest.mark.behaviour("CS-01")
def test_keys_and_tls_are_those_of_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = Authority(tmp_path / "ca").ca
    created("prod", "--user", "ops", "--secret-command", "echo pssst", "--ca", ca, "--no-check-host")
    keys = tmp_path / "keys"
    keys.write_text("accessKey=app\nsecretKey=two\n")
    created("stage", "--credentials-file", str(keys))
    created("bare")
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "three")
    prod = servers_of(None, "prod")
    assert (prod.credentials, prod.tls) == (Credentials("ops", "pssst"), Tls(ca=ca, check_host=False))
    assert "pssst" not in repr(prod)
    assert servers_of(None, "stage").credentials == Credentials("app", "two")
    assert servers_of(None, "bare").credentials == Credentials("env", "three")
    with pytest.raises(UsageError, match="context prod has keys or TLS, which the jobs on Spark take from"):
        servers_of(None, "prod", with_keys=False)
    assert servers_of(None, "bare", with_keys=False).addresses == "mq-1:9876"


@pytest.mark.behaviour("CS-55")
def test_a_file_of_a_context_that_is_gone_is_named_with_its_option(tmp_path: Path) -> None:
    ca = Path(Authority(tmp_path / "ca").ca)
    created("prod", "--ca", str(ca))
    ca.unlink()
    with pytest.raises(ValidationError) as gone:
        servers_of(None, "prod")
    assert str(gone.value) == f"--ca of context prod: {ca} cannot be read: No such file or directory"


@pytest.mark.behaviour("CS-01")
def test_java_options_that_ask_for_tls_are_obeyed_by_a_context_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created("clear")
    created("closed", "--ca", Authority(tmp_path / "ca").ca)
    monkeypatch.setenv("JAVA_OPT", "-Dtls.enable=true")
    assert servers_of(None, "closed").tls is not None
    with pytest.raises(UsageError, match=r"\$JAVA_OPT has -Dtls\.enable=true"):
        servers_of(None, "clear")


@pytest.mark.behaviour("CS-01")
def test_a_file_that_others_can_read_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    created("prod")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    for words in (["context", "list"], ["topic", "list"], ["context", "create", "x", "-n", "h:1"]):
        capsys.readouterr()
        assert main(words) == EXIT_USAGE
        said = f"{file} is open to other users of this machine (mode 640): run chmod 600 {file}"
        assert capsys.readouterr().err == f"orbitmq {words[0]}: {said}\n"


@pytest.mark.behaviour("CS-01")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is no file of contexts"),
        ("[]", "is no file of contexts"),
        ('{"contexts": {"a": {}}}', "missing required field `name_servers`"),
        ('{"contexts": {"a": {"name_servers": "h:1", "secret": "pssst"}}}', "unknown field `secret`"),
        ('{"current": "b"}', "the current context b is not among its contexts"),
        (" " * (contexts.MAX_FILE_BYTES + 1), f"is larger than {contexts.MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_file_of_another_form_is_refused(
    file: Path, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(0o600)
    assert main(["context", "list"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert str(file) in said
    assert says in said
    assert "pssst" not in said


@pytest.mark.behaviour("CS-01")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a/b", "-n", "h:1"], "a/b: a context has a name of letters"),
        (["x" * 65, "-n", "h:1"], "64 at most"),
        (["there", "-n", "h:1"], "context there is there already"),
        (["new", "-n", "h"], "name server address"),
        (["new", "-n", ";"], "there is no address in it"),
        (["new"], "--name-servers"),
        (["new", "-n", "h:1", "--user", "ops"], "--user and --secret-command belong together"),
        (["new", "-n", "h:1", "--secret-command", "x"], "--user and --secret-command belong together"),
        (["new", "-n", "h:1", "--credentials-file", "/none"], "/none cannot be read"),
        (["new", "-n", "h:1", "--ca", "/none"], "--ca: /none cannot be read"),
        (["new", "-n", "h:1", "--key", "/none"], "--key is given without a certificate"),
        (["new", "-n", "h:1", "--no-check-host"], "--no-check-host is about TLS"),
    ],
)
def test_a_context_that_no_command_could_use_is_not_made(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    created("there")
    capsys.readouterr()
    assert main(["context", "create", *words]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1
    assert main(["context", "list", "--json"]) == 0
    assert [one["context"] for one in json.loads(capsys.readouterr().out)["contexts"]] == ["there"]


@pytest.mark.behaviour("CS-02")
def test_a_secret_command_that_fails_is_named_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    created("prod", "--user", "ops", "--secret-command", "false")
    with pytest.raises(
        SecretCommandError, match="the secret command of context prod failed with exit code 1"
    ):
        servers_of(None, None)
    capsys.readouterr()
    assert main(["topic", "list"]) == EXIT_FAILED
    said = capsys.readouterr().err
    assert said == "orbitmq topic: the secret command of context prod failed with exit code 1\n"


@pytest.mark.behaviour("CS-01")
def test_contexts_are_shown_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "show"]) == EXIT_USAGE
    assert "there is no current context" in capsys.readouterr().err
    created("prod", "--user", "ops", "--secret-command", "false")
    created("stage")
    out = capsys.readouterr().out
    assert "prod" in out
    assert "it is the current one" in out
    assert "the current one is prod: use --context stage" in out
    assert main(["context", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["yes", "prod", "mq-1:9876", "ops", "-"]
    assert main(["context", "show"]) == 0  # the secret command is not run
    assert "secret_command" in capsys.readouterr().out
    assert main(["context", "delete", "prod", "--yes"]) == 0
    assert "there is no current one now" in capsys.readouterr().out
    assert servers_of(None, None).addresses == "127.0.0.1:9876"


@pytest.mark.behaviour("CS-01")
def test_what_goes_before_the_current_context_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    created("prod")
    monkeypatch.setenv("NAMESRV_ADDR", "h:1")
    capsys.readouterr()
    assert main(["context", "use", "prod"]) == 0
    assert "$NAMESRV_ADDR is set" in capsys.readouterr().err
    monkeypatch.setenv(contexts.VARIABLE, "prod")
    assert main(["context", "list"]) == 0
    assert "$ORBITMQ_CONTEXT is set: prod is used" in capsys.readouterr().err
