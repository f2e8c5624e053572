"""The console's rules without a cluster: bodies in three forms, and the choice of dead letters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from orbitmq import ValidationError
from orbitmq.cli.entering import Entering, read_users
from orbitmq.cli.failures import UsageError
from orbitmq.console.bodies import MOST_BYTES, shown
from orbitmq.console.choice import ranges
from orbitmq.console.model import Column, Table, as_csv
from orbitmq.console.slowing import MOST_KEPT, Slowing
from orbitmq.console.users_file import line_of, parsed
from orbitmq.console.words import WORDS
from orbitmq.wording import masked


@pytest.mark.behaviour("CS-21")
def test_a_body_is_text_json_or_hexadecimal_and_never_longer_than_the_limit() -> None:
    assert shown(b"a\xff", "text") == "a\N{REPLACEMENT CHARACTER}"
    assert shown(b'{"a":1}', "json") == '{\n  "a": 1\n}'
    assert shown(b"{", "json").startswith("not JSON: ")
    assert shown(bytes(range(17)), "hex").splitlines()[1] == "00000010  10"
    assert len(shown(b"x" * (MOST_BYTES + 1), "text")) == MOST_BYTES


@pytest.mark.behaviour("CS-24")
def test_chosen_dead_letters_are_ranges_by_broker() -> None:
    assert ranges(" ") is None
    assert ranges("b:7, a:3,b:1-2") == {"a": [(3, 4)], "b": [(1, 3), (7, 8)]}
    for wrong in ("a", "a:", "a:2-1", "a:x", "a:1-", ":1"):
        with pytest.raises(ValidationError, match="expected BROKER:OFFSET"):
            ranges(wrong)


@pytest.mark.behaviour("CS-09")
def test_a_setting_with_a_secret_is_masked() -> None:
    shown_settings = [masked(key, "x") for key in ("initAuthenticationUser", "metricsToken", "listenPort")]
    assert shown_settings == ["***", "***", "x"]
    assert masked("secretKey", "") == ""


@pytest.mark.behaviour("CS-29")
def test_the_file_of_users_is_read_line_by_line() -> None:
    line = line_of("anna", "operator", "correct horse")
    users = parsed(f"# comment\n\n{line}\nben:viewer\n", "users.txt")
    assert [(one.name, one.role) for one in users.values()] == [("anna", "operator"), ("ben", "viewer")]
    assert users["anna"].has_password("correct horse")
    assert not users["anna"].has_password("correct horse ")
    assert not users["ben"].has_password("")
    assert "correct" not in line
    for wrong in (
        "anna",
        "anna:king",
        ":viewer",
        "an na:viewer",
        "anna:viewer:plain:secret",
        "anna:viewer:scrypt:16384:8:1:zz:zz",
        "anna:viewer:scrypt:16383:8:1:" + "00" * 16 + ":" + "00" * 32,
        "anna:viewer:scrypt:1073741824:8:1:" + "00" * 16 + ":" + "00" * 32,
        "anna:viewer:scrypt:16384:8:1::" + "00" * 32,
        "anna:viewer:scrypt:16384:8:1:" + "00" * 16 + ":",
    ):
        with pytest.raises(ValidationError, match="line 2: expected NAME:ROLE"):
            parsed(f"ben:viewer\n{wrong}\n", "users.txt")
    with pytest.raises(ValidationError, match="line 2: ben is there twice"):
        parsed("ben:viewer\nben:admin\n", "users.txt")
    with pytest.raises(ValidationError, match="it has no user"):
        parsed("# none\n", "users.txt")
    for name, role, password in (
        ("a b", "viewer", "12345678"),
        ("a", "king", "12345678"),
        ("a", "viewer", "short"),
    ):
        with pytest.raises(ValidationError):
            line_of(name, role, password)


@pytest.mark.behaviour("CS-30")
def test_each_failed_login_doubles_the_wait_up_to_a_minute() -> None:
    slowing, now, waits = Slowing(), 0.0, []
    for _ in range(12):
        slowing.failed("anna", now)
        waits.append(slowing.wait_s("anna", now))
        now += waits[-1]
    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert slowing.wait_s("ben", now) == 0
    slowing.succeeded("anna")
    assert slowing.wait_s("anna", now) == 0
    for number in range(MOST_KEPT + 5):
        slowing.failed(str(number), now)
    assert len(slowing._failures) == MOST_KEPT


@pytest.mark.behaviour("CS-29")
@pytest.mark.parametrize(
    ("options", "host", "what"),
    [
        ({}, "0.0.0.0", "it needs users"),
        ({"login": True}, "0.0.0.0", "passwords need https"),
        ({"users": "f"}, "10.0.0.5", "passwords need https"),
        ({"users": "f", "login": True}, "127.0.0.1", "give one of them"),
        ({"cert": "c"}, "127.0.0.1", "belong together"),
        ({"user_header": "X"}, "127.0.0.1", "--user-header needs"),
        ({"behind_proxy": "10.0.0.1"}, "127.0.0.1", "--behind-proxy needs --public"),
        ({"public": "mq.example.com"}, "127.0.0.1", "expected an address"),
        ({"public": "https://mq.example.com/x"}, "127.0.0.1", "expected an address"),
        ({"public": "ftp://mq"}, "127.0.0.1", "expected an address"),
        ({"public": "https://mq:x"}, "127.0.0.1", "expected an address"),
    ],
)
def test_an_entrance_for_strangers_or_for_nobody_is_refused(
    options: dict[str, Any], host: str, what: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        Entering(**options).check(host, 8082)


@pytest.mark.behaviour("CS-29")
def test_an_entrance_with_users_and_https_may_be_anywhere() -> None:
    Entering(login=True, cert="c", key="k").check("0.0.0.0", 8082)
    proxied = Entering(users="f", behind_proxy="10.0.0.1", public="https://mq.example.com/")
    proxied.check("0.0.0.0", 8082)
    assert proxied.address("0.0.0.0", 8082) == "https://mq.example.com"
    assert Entering().address("::1", 8082) == "http://[::1]:8082"


@pytest.mark.behaviour("CS-29")
def test_a_file_of_users_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    path.write_text("ben:viewer\n")
    path.chmod(0o644)
    with pytest.raises(ValidationError, match="chmod 600"):
        read_users(str(path))
    path.chmod(0o600)
    assert set(read_users(str(path))) == {"ben"}
    with pytest.raises(UsageError, match="No such file"):
        read_users(str(tmp_path / "none"))


def test_every_text_is_there_in_both_languages() -> None:
    assert all(english and chinese for english, chinese in WORDS.values())
    for key, (english, chinese) in WORDS.items():
        assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese)), key


def test_a_cell_that_a_spreadsheet_would_run_is_quoted() -> None:
    table = Table("t", (Column("a"), Column("b", "number")), [{"a": "=1+1", "b": -1}, {"a": None, "b": 2}])
    assert as_csv(table) == "a,b\r\n'=1+1,-1\r\n,2\r\n"
