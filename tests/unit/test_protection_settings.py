"""Settings of access control or TLS that a server does not have are refused."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.nameserver.config import NameServerConfig

ASKS = [
    "AclEnable = true",
    "useTLS=true",
    "tlsEnable=true",
    "TLS.enable=true",
    "tls.server.protocols=TLSv1.3",
    "tls.protocols=TLSv1.3",
    # The key differs from the setting's in case.
    "AuthenticationEnabled = true",
]
DOES_NOT = [
    "useTLS=false",
    "tlsEnable=false",
    "tls.protocols=",
]
Kind = type[BrokerConfig] | type[NameServerConfig]
KINDS: list[Kind] = [BrokerConfig, NameServerConfig]
# A broker has ACL 1.0, a name server does not.
CASES: list[tuple[Kind, str]] = [
    *product(KINDS, ASKS),
    *((NameServerConfig, f"aclEnable={value}") for value in ("true", "TRUE", "yes")),
]


@pytest.mark.behaviour("ST-17")
@pytest.mark.parametrize(("kind", "line"), CASES)
def test_a_file_that_asks_for_protection_is_refused(kind: Kind, line: str) -> None:
    key, _, value = (part.strip() for part in line.partition("="))
    with pytest.raises(ConfigError) as failure:
        kind.load(f"listenPort=1\n{line}\n")
    assert str(failure.value).startswith(
        f"line 2: {key}={value}: expected no such setting: this server does not have it; use "
    )
    instead = "tls.server.mode" if "tls" in key.lower() else "authenticationEnabled with users and rules"
    assert instead in str(failure.value)
    assert "allowOpen=true" in str(failure.value)
    with pytest.raises(ConfigError, match=key):
        kind.load("", {key: value})


@pytest.mark.behaviour("ST-17")
@pytest.mark.parametrize(("kind", "line"), CASES)
def test_allow_open_starts_it_and_says_so(kind: Kind, line: str) -> None:
    _, said = kind.load(f"{line}\nallowOpen=true")
    assert len(said) == 1
    assert "this server cannot do that" in said[0]
    assert kind.load(line, {"allowOpen": "true"})[1] == said


@pytest.mark.behaviour("ST-17")
@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
@pytest.mark.parametrize("line", DOES_NOT)
def test_what_asks_for_none_starts(kind: Kind, line: str) -> None:
    _, said = kind.load(line)
    assert len(said) == 1
    assert line.partition("=")[0] in said[0]


@pytest.mark.behaviour("ST-17")
def test_a_key_of_access_control_in_another_spelling_is_refused_by_brokers_too() -> None:
    with pytest.raises(ConfigError, match="authenticationenabled=true: expected no such setting"):
        BrokerConfig.load("authenticationenabled=true")


@pytest.mark.behaviour("ST-17")
def test_all_keys_are_named_and_an_override_switches_one_off() -> None:
    text = "aclEnable=true\ntls.protocols=TLSv1.3"
    with pytest.raises(
        ConfigError, match=r"line 1: aclEnable=true: expected no such setting, nor tls.protocols:"
    ):
        NameServerConfig.load(text)
    for kind in KINDS:
        with pytest.raises(ConfigError, match=r"^line 2: tls.protocols=TLSv1.3"):
            kind.load(text, {"aclEnable": "false"})


@pytest.mark.behaviour("ST-17")
@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_a_setting_that_an_override_switches_off_is_not_spoken_of(kind: Kind) -> None:
    assert kind.load("useTLS=true", {"useTLS": "false"})[1] == ["useTLS has no effect here"]
    assert kind.load("listenPort=x", {"listenPort": "9"})[0].listen_port == 9


@pytest.mark.behaviour("ST-17")
@pytest.mark.parametrize("server", ["broker", "nameserver"])
@pytest.mark.parametrize("place", ["file", "--set", "JAVA_OPT"])
def test_the_commands_end_with_a_line(server: str, place: str, tmp_path: Path) -> None:
    conf = tmp_path / "its.conf"
    conf.write_text("tls.protocols=TLSv1.3\n" if place == "file" else "")
    more = ["--set", "tls.protocols=TLSv1.3"] if place == "--set" else []
    options = "-Xmx1g -Dtls.protocols=TLSv1.3" if place == "JAVA_OPT" else ""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", server, "-c", str(conf), "--port", "0", *more],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAVA_OPT": options},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "tls.protocols=TLSv1.3" in done.stderr
    assert "Traceback" not in done.stderr
    assert ("$JAVA_OPT" in done.stderr) is (place == "JAVA_OPT")


@pytest.mark.behaviour("ST-17")
def test_a_tool_that_java_options_ask_for_tls_talks_to_nobody(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", "topic", "list", "-n", "127.0.0.1:1"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAVA_OPT": "-Dtls.enable=true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "$JAVA_OPT has -Dtls.enable=true" in done.stderr
