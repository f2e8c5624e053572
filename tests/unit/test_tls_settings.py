"""The settings of TLS: their keys, impossible combinations, and the files that may hold them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.certificates import Authority

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.settings import tls
from orbitmq.settings.tls import TlsSettings

Kind = type[BrokerConfig] | type[NameServerConfig]
both = pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
CERTIFICATE = "tls.server.certPath=/c.pem\ntls.server.keyPath=/c.key\n"
MUTUAL = "tls.server.authClient=true\ntls.server.trustCertPath=/ca.pem\n"


@both
@pytest.mark.behaviour("TL-09")
def test_the_defaults(kind: Kind) -> None:
    config, said = kind.load("")
    assert config.tls == TlsSettings()
    assert (config.tls.mode, config.tls.test_mode, config.tls.client()) == ("permissive", False, None)
    assert (config.max_connections, config.max_connections_per_address) == (10_000, 1000)
    assert config.proxy_protocol_trusted == ""
    assert said == []


@both
@pytest.mark.behaviour("TL-17")
@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("tls.server.mode=enforcign", "tls.server.mode", "disabled, permissive or enforcing (RocketMQ takes"),
        ("tls.server.mode=", "tls.server.mode", "disabled, permissive or enforcing"),
        (
            CERTIFICATE + MUTUAL + "tls.server.need.client.auth=required",
            "tls.server.need.client.auth",
            "none, optional or require (RocketMQ takes any other word, `required` too, for none)",
        ),
        ("tls.server.mode=enforcing", "tls.server.mode", "tls.server.certPath and tls.server.keyPath beside"),
        ("tls.server.certPath=/c.pem", "tls.server.certPath", "tls.server.keyPath beside it"),
        ("tls.server.keyPath=/c.key", "tls.server.keyPath", "tls.server.certPath beside it"),
        ("tls.client.certPath=/c.pem", "tls.client.certPath", "tls.client.keyPath beside it"),
        ("tls.client.keyPath=/c.key", "tls.client.keyPath", "tls.client.certPath beside it"),
        (
            CERTIFICATE + "tls.server.need.client.auth=require\ntls.server.trustCertPath=/ca.pem",
            "tls.server.need.client.auth",
            "tls.server.authClient=true beside it: without it RocketMQ takes any certificate",
        ),
        (
            CERTIFICATE + "tls.server.need.client.auth=require\ntls.server.authClient=true",
            "tls.server.need.client.auth",
            "tls.server.trustCertPath beside it",
        ),
        (
            MUTUAL + "tls.server.need.client.auth=optional",
            "tls.server.need.client.auth",
            "there is no TLS",
        ),
        (CERTIFICATE + MUTUAL, "tls.server.authClient", "no client is asked for a certificate"),
        ("tls.enable=yes", "tls.enable", "true or false"),
        ("tls.server.clientCertificateUser=dn", "tls.server.clientCertificateUser", "off, san or cn"),
        ("tls.config.file=/etc/tls", "tls.config.file", "only the command line reads that one"),
    ],
)
def test_what_does_not_go_together_is_a_start_error(kind: Kind, text: str, key: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind.load(text)
    assert caught.value.key == key
    assert expected in str(caught.value)


@both
@pytest.mark.behaviour("TL-17")
def test_words_in_any_case_and_what_is_said_about_half_protection(kind: Kind) -> None:
    config, said = kind.load(
        CERTIFICATE + MUTUAL + "tls.server.mode=Enforcing\ntls.server.need.client.auth=REQUIRE"
    )
    assert (config.tls.mode, config.tls.client_auth) == ("enforcing", "require")
    assert ["without tls.enable=true" in each for each in said] == [True]
    _, said = kind.load(CERTIFICATE + MUTUAL + "tls.server.need.client.auth=require")
    assert ["clients without TLS show no certificate" in each for each in said] == [True]
    _, said = kind.load(CERTIFICATE + "tls.server.mode=disabled")
    assert said == ["tls.server.mode=disabled: tls.server.certPath has no effect"]
    _, said = kind.load("tls.test.mode.enable=true\ntls.client.authServer=false")
    assert "no client can check it" in said[0]
    assert "always checked" in said[1]


@both
@pytest.mark.behaviour("TL-23")
def test_a_certificate_names_a_user_only_where_it_is_required_and_users_are(kind: Kind) -> None:
    named = "tls.server.clientCertificateUser=CN\n"
    keys = 'authenticationEnabled=true\ninitAuthenticationUser={"username":"root","password":"secret"}\n'
    required = CERTIFICATE + MUTUAL + "tls.server.need.client.auth=require\n"
    assert kind.load("")[0].tls.names == "off"
    assert kind.load(keys + required + named)[0].tls.names == "cn"
    optional = CERTIFICATE + MUTUAL + "tls.server.need.client.auth=optional\n"
    for text, expected in (
        (keys + named, "tls.server.need.client.auth=require beside it"),
        (keys + optional + named, "tls.server.need.client.auth=require beside it"),
        (required + named, "authenticationEnabled=true beside it"),
    ):
        with pytest.raises(ConfigError) as caught:
            kind.load(text)
        assert caught.value.key == "tls.server.clientCertificateUser"
        assert "tls.server.clientCertificateUser=" in str(caught.value)
        assert expected in str(caught.value)


@both
@pytest.mark.behaviour("TL-19")
def test_a_password_is_not_shown(kind: Kind) -> None:
    config, _ = kind.load(CERTIFICATE + "tls.server.keyPassword=pssst")
    assert config.tls.key_password == "pssst"
    assert config.to_properties()["tls.server.keyPassword"] == "***"
    assert kind.load("")[0].to_properties()["tls.server.keyPassword"] == ""
    with pytest.raises(ConfigError) as caught:
        kind.load("tls.client.keyPassword=pssst")
    assert "pssst" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        tls.merged("tls.server.keyPassword=pssst", {}, {"tls.server.keyPassword": "other"}, "tls.properties")
    assert "pssst" not in str(caught.value)


@pytest.mark.behaviour("TL-18")
def test_what_stands_in_two_places_must_be_the_same() -> None:
    more = {"tls.server.mode": "enforcing", "tls.enable": "true", "other": "1", "tls.config.file": "/x"}
    assert tls.merged("listenPort=1", {"brokerId": "1"}, more, "f") == {
        "brokerId": "1",
        "tls.server.mode": "enforcing",
        "tls.enable": "true",
    }
    assert tls.merged("tls.enable = true", {}, more, "f")["tls.enable"] == "true"
    for conf, overrides in (("tls.enable=false", {}), ("", {"tls.enable": "false"})):
        with pytest.raises(ConfigError, match=r"tls\.enable=false: expected the value that it has in f"):
            tls.merged(conf, overrides, more, "f")


@pytest.mark.behaviour("TL-15")
def test_files_of_the_own_requests_are_named_by_their_keys(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.issue("broker")
    found = TlsSettings(
        client_enable=True, client_authorities=authority.ca, client_cert=mine.cert, client_key=mine.key
    ).client()
    assert found is not None
    assert (found.ca, found.cert, found.key, found.check_host) == (authority.ca, mine.cert, mine.key, True)
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(StartError, match=r"tls\.client\.trustCertPath: .*missing\.pem cannot be read"):
        TlsSettings(client_enable=True, client_authorities=missing).client()
    with pytest.raises(StartError, match=r"tls\.client\.certPath: .*missing\.pem cannot be read"):
        TlsSettings(client_enable=True, client_cert=missing, client_key=mine.key).client()
    assert TlsSettings(client_authorities=missing).client() is None


def printed(server: str, folder: Path, *options: str, code: int = 0, **environment: str) -> str:
    """The output of a server with -p, or its error."""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", server, "-p", *options],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout or done.stderr


@pytest.mark.behaviour("TL-18")
@pytest.mark.parametrize("server", ["broker", "nameserver"])
def test_java_options_and_the_file_count(server: str, tmp_path: Path) -> None:
    file, conf = tmp_path / "tls.properties", tmp_path / "its.conf"
    file.write_text(CERTIFICATE + "tls.server.keyPassword=pssst\n")
    conf.write_text(f"tls.config.file={file}\n")
    java = "-Xmx1g -Dtls.server.mode=enforcing -Dtls.enable=true"
    said = printed(server, tmp_path, "-c", str(conf), JAVA_OPT_EXT=java)
    for line in ("tls.server.mode=enforcing", "tls.enable=true", "tls.server.certPath=/c.pem"):
        assert f"{line}\n" in said
    assert "tls.server.keyPassword=***\n" in said
    assert "pssst" not in said
    named = f"-Dtls.config.file={file}"
    assert "tls.server.keyPath=/c.key\n" in printed(server, tmp_path, JAVA_OPT=named)
    said = printed(
        server, tmp_path, "-c", str(conf), "--set", "tls.server.mode=permissive", code=2, JAVA_OPT=java
    )
    assert "$JAVA_OPT: tls.server.mode=permissive: expected the value that it has in $JAVA_OPT" in said
    said = printed(server, tmp_path, "--set", f"tls.config.file={tmp_path}/none", code=2)
    assert "none: No such file" in said
    file.write_text("tls.protocols=TLSv1.3\n")
    said = printed(server, tmp_path, "-c", str(conf), code=2)
    assert f"{file}: line 1: tls.protocols=TLSv1.3: expected no such setting" in said


@pytest.mark.behaviour("LM-04")
@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_addresses_of_proxies(kind: type[BrokerConfig] | type[NameServerConfig]) -> None:
    given = "10.0.0.1; 10.1.0.0/16;fd00::/8;"
    config, said = kind.load(f"proxyProtocolTrusted={given}")
    assert (config.proxy_protocol_trusted, said) == ("10.0.0.1/32;10.1.0.0/16;fd00::/8", [])
    for wrong in ("proxy-1", "10.0.0.1/8", "10.0.0.1:80", "10.0.0.1,10.0.0.2", "10.0.0.300"):
        with pytest.raises(ConfigError, match="IP addresses and networks separated by ';'"):
            kind.load(f"proxyProtocolTrusted={wrong}")
