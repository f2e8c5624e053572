"""Keys and TLS of the command line and of Spark: from options, a file, or the environment."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority

from orbitmq import Credentials, Tls, ValidationError
from orbitmq.client.core.identities import identity_of
from orbitmq.client.core.identity_names import VARIABLES
from orbitmq.spark.errors import OptionError
from orbitmq.spark.options import option_names, read_options, write_options
from orbitmq.transport.identity import NOBODY, Identity


class Environment:
    name, pid, home, cores, memory_bytes = "host", 1, "/home", 1, 1

    def __init__(self, **variables: str) -> None:
        self._variables = variables

    def variable(self, name: str) -> str:
        return self._variables.get(name, "")


@pytest.mark.behaviour("AU-11")
def test_options_go_before_the_environment() -> None:
    environment = Environment(ORBITMQ_ACCESS_KEY="env", ORBITMQ_SECRET_KEY="one", ORBITMQ_SECURITY_TOKEN="t")
    assert identity_of({}, Environment()) == NOBODY
    assert identity_of({}, environment).credentials == Credentials("env", "one", "t")
    given = {"accessKey": "app", "secretKey": "two"}
    assert identity_of(given, environment).credentials == Credentials("app", "two")


@pytest.mark.behaviour("AU-11")
@pytest.mark.parametrize(
    "text",
    [
        "accessKey=app\nsecretKey=p=s:st\n",
        "# mqadmin's\naccessKey: app\nsecretKey: p=s:st",
        "\n  secretKey: 'p=s:st'\n  accessKey: \"app\"\n",
    ],
)
def test_a_file_of_keys_as_properties_or_as_tools_yml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    wanted = Credentials("app", "p=s:st")
    assert identity_of({"credentialsFile": str(path)}, Environment()).credentials == wanted
    assert identity_of({}, Environment(ORBITMQ_CREDENTIALS_FILE=str(path))).credentials == wanted


@pytest.mark.behaviour("AU-11")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has none: write accessKey=... and secretKey=..."),
        ("accessKey=app", "secretKey is missing in "),
        ("secretKey=pssst", "accessKey is missing in "),
        ("accessKey=app\nsecretKey=pssst\npssst\n", "line 3 of "),
        ("accessKey=app\nsecret=pssst", "line 2 of "),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_files_of_keys_that_cannot_be_right(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValidationError) as caught:
        identity_of({"credentialsFile": str(path)}, Environment())
    assert words in str(caught.value)
    assert "pssst" not in str(caught.value)
    with pytest.raises(ValidationError, match="cannot be read: No such file"):
        identity_of({"credentialsFile": str(tmp_path / "none")}, Environment())


@pytest.mark.behaviour("AU-11")
def test_half_of_the_keys_names_what_is_missing() -> None:
    with pytest.raises(ValidationError, match=r"^secretKey is missing beside accessKey$"):
        identity_of({"accessKey": "app"}, Environment())
    with pytest.raises(ValidationError, match=r"^ORBITMQ_ACCESS_KEY is missing beside ORBITMQ_SECRET_KEY$"):
        identity_of({}, Environment(ORBITMQ_SECRET_KEY="pssst"))
    with pytest.raises(ValidationError, match="credentialsFile and accessKey both give keys"):
        identity_of({"accessKey": "app", "credentialsFile": "f"}, Environment())


@pytest.mark.behaviour("AU-11")
def test_tls_from_options_and_environment(tmp_path: Path) -> None:
    ca = Authority(tmp_path).ca
    assert identity_of({"tlsCa": ca}, Environment()).tls == Tls(ca=ca)
    assert identity_of({"tls": "true"}, Environment()).tls == Tls()
    assert identity_of({"tls": "false", "tlsCa": ca}, Environment()).tls is None
    environment = Environment(ORBITMQ_TLS_CA=ca, ORBITMQ_TLS_CHECK_HOST="FALSE")
    assert identity_of({}, environment).tls == Tls(ca=ca, check_host=False)
    assert identity_of({"tls": "false"}, environment).tls is None
    with pytest.raises(ValidationError, match=r"^ORBITMQ_TLS_CA: /none cannot be read"):
        identity_of({}, Environment(ORBITMQ_TLS_CA="/none"))
    with pytest.raises(ValidationError, match=r"^tlsKey is given without a certificate"):
        identity_of({"tlsKey": "/none"}, Environment())
    with pytest.raises(ValidationError, match="ORBITMQ_TLS must be true or false, got 'yes'"):
        identity_of({}, Environment(ORBITMQ_TLS="yes"))


@pytest.mark.behaviour("AU-12")
def test_spark_takes_them_as_options_and_hands_them_to_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(VARIABLES) <= set(option_names())
    given = {"topic": "t", "accesskey": "app", "secretkey": "pssst"}
    for made in (read_options(given), write_options(given)):
        wanted = Identity(Credentials("app", "pssst"))
        assert pickle.loads(pickle.dumps(made)).identity == wanted
        assert "pssst" not in repr(made)
    with pytest.raises(OptionError, match="accessKey is missing beside secretKey") as caught:
        read_options({"topic": "t", "secretkey": "pssst"})
    assert "pssst" not in str(caught.value)
    with pytest.raises(OptionError, match="white space") as caught:
        read_options({"topic": "t", "accesskey": "app", "secretkey": "pssst\n"})
    assert "pssst" not in str(caught.value)
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "pssst")
    assert read_options({"topic": "t"}).identity == Identity(Credentials("env", "pssst"))
