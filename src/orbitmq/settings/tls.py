"""The settings of TLS, in RocketMQ's keys, for both servers.

RocketMQ reads them from Java options and from the file that ``tls.config.file`` names; here they may be in
the server's own file too. Values with which RocketMQ silently runs without protection are errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

from orbitmq.errors import StartError, ValidationError
from orbitmq.runtime.client_names import NamePart
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.paths import expanded
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import CertificateFiles, ClientAuth, ServerTls, TlsMode
from orbitmq.settings import properties_text
from orbitmq.settings.typed import HIDDEN, ConfigError, Settings, flag, setting

FILE_KEY: Final = "tls.config.file"
PREFIX: Final = "tls."
NAMES_KEY: Final = "tls.server.clientCertificateUser"
# Protocols that clients ask for (ALPN): those of gRPC ask for HTTP/2, others for none.
PROTOCOLS: Final = ("h2",)

E = TypeVar("E", bound=Enum)


def _file(_key: str, value: str) -> str:
    """A file, or none."""
    return expanded(value) if value else ""


def _text(_key: str, value: str) -> str:
    return value


def _word(kind: type[E], expected: str) -> Callable[[str, str], str]:
    """A parser for one of the words of ``kind``, in upper or lower case."""

    def parse(key: str, value: str) -> str:
        lowered = value.lower()
        if lowered not in {str(each.value) for each in kind}:
            raise ConfigError(key, value, expected)
        return lowered

    return parse


_mode = _word(TlsMode, "disabled, permissive or enforcing (RocketMQ takes any other word for permissive)")
_auth = _word(
    ClientAuth, "none, optional or require (RocketMQ takes any other word, `required` too, for none)"
)
_names = _word(NamePart, "off, san or cn")


@dataclass(frozen=True, slots=True)
class TlsSettings(Settings):
    """TLS of a server and of the requests that it sends itself; the defaults are RocketMQ's except:

    * ``test_mode`` is off (RocketMQ on): a certificate that nobody can check is made on request only.
    * ``client_check_host`` and ``names`` are OrbitMQ's own settings; the first is on, the second off.
    """

    mode: str = setting("permissive", "tls.server.mode", _mode)
    config_file: str = setting("", FILE_KEY, _file)
    cert: str = setting("", "tls.server.certPath", _file)
    key: str = setting("", "tls.server.keyPath", _file)
    key_password: str = setting("", "tls.server.keyPassword", _text, secret=True)
    client_auth: str = setting("none", "tls.server.need.client.auth", _auth)
    checks_clients: bool = setting(False, "tls.server.authClient", flag)
    authorities: str = setting("", "tls.server.trustCertPath", _file)
    names: str = setting("off", NAMES_KEY, _names)
    test_mode: bool = setting(False, "tls.test.mode.enable", flag)
    client_enable: bool = setting(False, "tls.enable", flag)
    client_cert: str = setting("", "tls.client.certPath", _file)
    client_key: str = setting("", "tls.client.keyPath", _file)
    client_key_password: str = setting("", "tls.client.keyPassword", _text, secret=True)
    client_checks: bool = setting(True, "tls.client.authServer", flag)
    client_authorities: str = setting("", "tls.client.trustCertPath", _file)
    client_check_host: bool = setting(True, "tls.client.checkHost", flag)

    @property
    def has_certificate(self) -> bool:
        """Whether clients with TLS are served."""
        return bool(self.cert) or self.test_mode

    def check(self) -> list[str]:
        """Refuse settings that do not go together; returns sentences about those that do less than they seem
        to.

        Raises:
            ConfigError: the error names one of their keys.
        """
        if self.config_file:
            raise ConfigError(
                FILE_KEY, self.config_file, "its settings in this file: only the command line reads that one"
            )
        for key, value, other, beside in (
            ("tls.server.certPath", self.cert, "tls.server.keyPath", self.key),
            ("tls.server.keyPath", self.key, "tls.server.certPath", self.cert),
            ("tls.client.certPath", self.client_cert, "tls.client.keyPath", self.client_key),
            ("tls.client.keyPath", self.client_key, "tls.client.certPath", self.client_cert),
        ):
            if value and not beside:
                raise ConfigError(key, value, f"{other} beside it")
        if self.mode == TlsMode.ENFORCING.value and not self.has_certificate:
            raise ConfigError(
                "tls.server.mode",
                self.mode,
                "tls.server.certPath and tls.server.keyPath beside it (tls.test.mode.enable=true makes a "
                "certificate that nobody can check)",
            )
        self._check_client_auth()
        if self.client_key_password:
            raise ConfigError("tls.client.keyPassword", HIDDEN, "a key without a password")
        return self._advice()

    def _check_client_auth(self) -> None:
        key = "tls.server.need.client.auth"
        if self.names != NamePart.OFF.value and self.client_auth != ClientAuth.REQUIRE.value:
            raise ConfigError(
                NAMES_KEY, self.names, f"{key}=require beside it: only a checked certificate names a user"
            )
        if self.client_auth == ClientAuth.NONE.value:
            if self.checks_clients:
                raise ConfigError(
                    "tls.server.authClient",
                    "true",
                    f"{key}=require or {key}=optional beside it: no client is asked for a certificate",
                )
            return
        if not self.checks_clients:
            raise ConfigError(
                key,
                self.client_auth,
                "tls.server.authClient=true beside it: without it RocketMQ takes any certificate",
            )
        if not self.authorities:
            raise ConfigError(
                key,
                self.client_auth,
                "tls.server.trustCertPath beside it: the authorities whose certificates clients may show",
            )
        if not self.has_certificate:
            raise ConfigError(
                key, self.client_auth, "tls.server.certPath and tls.server.keyPath beside it: there is no TLS"
            )

    def _advice(self) -> list[str]:
        found = []
        if self.mode == TlsMode.ENFORCING.value and not self.client_enable:
            found.append(
                "tls.server.mode=enforcing without tls.enable=true: what this server asks of other servers "
                "goes in clear, and those that enforce TLS refuse it"
            )
        if self.mode == TlsMode.PERMISSIVE.value and self.client_auth == ClientAuth.REQUIRE.value:
            found.append(
                "tls.server.need.client.auth=require with tls.server.mode=permissive: clients without TLS "
                "show no certificate, and are served"
            )
        if self.mode == TlsMode.DISABLED.value and self.cert:
            found.append("tls.server.mode=disabled: tls.server.certPath has no effect")
        if self.test_mode and not self.cert:
            found.append(
                "tls.test.mode.enable=true: the certificate is made at the start, and no client can check it"
            )
        if not self.client_checks:
            found.append(
                "tls.client.authServer=false has no effect: certificates of other servers are always checked"
            )
        return found

    def server(self, runtime: Runtime, hosts: Sequence[str]) -> ServerTls:
        """The TLS of a server that is reached by these hosts."""
        files = CertificateFiles(
            self.cert,
            self.key,
            self.key_password,
            self.authorities if self.client_auth != ClientAuth.NONE.value else "",
            required=self.client_auth == ClientAuth.REQUIRE.value,
        )
        made_for = () if self.cert or not self.test_mode else tuple(host for host in hosts if host)
        return ServerTls(runtime, TlsMode(self.mode), files, made_for, PROTOCOLS, names=NamePart(self.names))

    def client(self) -> Tls | None:
        """The TLS of the server's own requests; None: they are sent in clear.

        Raises:
            StartError: a file cannot be used.
        """
        return _own_tls(self) if self.client_enable else None


KEYS: Final = frozenset(TlsSettings().to_properties())


@lru_cache(maxsize=64)
def _own_tls(settings: TlsSettings) -> Tls:
    """The TLS settings of the server's own requests. Each connection reads the files again when it opens."""
    try:
        return Tls(
            ca=settings.client_authorities or None,
            cert=settings.client_cert or None,
            key=settings.client_key or None,
            check_host=settings.client_check_host,
        )
    except ValidationError as error:
        text = str(error).replace("Tls.ca", "tls.client.trustCertPath")
        text = text.replace("Tls.cert", "tls.client.certPath").replace("Tls.key", "tls.client.keyPath")
        raise StartError(text) from error


def merged(conf: str, overrides: Mapping[str, str], more: Mapping[str, str], place: str) -> dict[str, str]:
    """The overrides with the settings of TLS from another place, such as the file of tls.config.file.

    In RocketMQ that file wins over all else but the mode. Here no place wins: a setting that has different
    values in two places is an error.

    Args:
        conf: the text of the server's own file.
        more: the settings of the other place.
        place: its name, for errors.

    Raises:
        ConfigError: see above.
    """
    elsewhere = {**properties_text.parse(conf), **overrides}
    found = {key: value for key, value in more.items() if key.startswith(PREFIX) and key != FILE_KEY}
    for key, value in found.items():
        other = elsewhere.get(key, value)
        if other.strip() != value.strip():
            shown = HIDDEN if "password" in key.lower() else other
            raise ConfigError(key, shown, f"the value that it has in {place}, or none here")
    return {**found, **overrides}
