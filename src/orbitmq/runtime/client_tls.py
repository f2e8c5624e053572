"""TLS of clients: which certificates they trust and show, and what went wrong when a handshake failed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from orbitmq.errors import ValidationError

# The most TLS contexts that are kept for further connections: reading the machine's certificate authorities
# takes tens of milliseconds. A process has one or two identities, each with its files before and after a
# renewal.
MOST_KEPT: Final = 16
# Numbers of OpenSSL's X509_V_ERR_*, as are the next three.
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_OTHER_HOST: Final = frozenset({62, 63, 64})
# Alerts of servers that require a client's certificate, or refuse the one that the client has sent.
_WANTS_CERTIFICATE: Final = (
    "CERTIFICATE_REQUIRED",
    "HANDSHAKE_FAILURE",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
)


class TlsOptionError(ValidationError):
    """An option of :class:`Tls` is wrong.

    Attributes:
        option: its name.
        problem: what follows the name in the text.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"Tls.{option}{problem}")
        self.option = option
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS options of a client. The files are PEM. A file that has changed is read again for the next
    connection, so renewed files take effect.

    Example::

        Producer("shop", tls=Tls(ca="/etc/mq/ca.pem"))
        Producer("shop", tls=Tls(ca="ca.pem", cert="app.pem", key="app.key"))  # mutual TLS

    Attributes:
        ca: the file with the certificates of the authorities that are trusted. None: those of this machine.
        cert: the file with the certificate that the client shows, and those up to its authority.
        key: the file with its private key, without a password. None: it is in ``cert``.
        check_host: whether the certificate of a server must be for the host that was connected to. Brokers
            are connected to by the addresses that they register, most often IP addresses.

    Raises:
        TlsOptionError: a file cannot be read or has a wrong content.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    check_host: bool = True

    def __post_init__(self) -> None:
        for name in ("ca", "cert", "key"):
            given = getattr(self, name)
            if isinstance(given, os.PathLike):
                object.__setattr__(self, name, os.fspath(given))
            elif given is not None and (not isinstance(given, str) or not given):
                raise TlsOptionError(name, f" must be the name of a file, got {given!r:.80}")
        if not isinstance(self.check_host, bool):
            raise TlsOptionError("check_host", f" must be True or False, got {self.check_host!r:.80}")
        if self.key is not None and self.cert is None:
            raise TlsOptionError("key", " is given without a certificate: it is shown with one only")
        client_context(self)


def client_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context for one connection, from the files as they are now.

    Raises:
        TlsOptionError: a file cannot be read or has a wrong content.
    """
    paths: tuple[str | None, ...] = (tls.ca, tls.cert, tls.key)
    if tls.ca is None:
        machine = ssl.get_default_verify_paths()
        paths = (machine.cafile, machine.capath, *paths)
    # Taken before the files are read: a file that changes meanwhile has another stamp the next time.
    return _context(tls, tuple(map(_stamp, paths)))


def _stamp(path: str | None) -> tuple[int, ...]:
    """Tells whether a file has been changed or replaced; empty: there is none."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        found = None
    return () if found is None else (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=MOST_KEPT)
def _context(tls: Tls, _stamps: tuple[tuple[int, ...], ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_host
    if tls.ca is None:
        context.load_default_certs()
    else:
        ca = tls.ca
        _reading("ca", ca, lambda: context.load_verify_locations(ca))
        if not context.cert_store_stats()["x509"]:
            raise TlsOptionError("ca", f": {ca} holds no certificate in PEM form")
    if tls.cert is not None:
        cert = tls.cert
        if tls.key is not None:
            _reading("key", tls.key, lambda: None)
        # Without this callback OpenSSL would ask for a password on the terminal.
        _reading("cert", cert, lambda: context.load_cert_chain(cert, tls.key, password=_no_password))
    return context


def _reading(name: str, path: str, load: Callable[[], None]) -> None:
    try:
        with open(path, "rb"):
            pass
        load()
    except ssl.SSLError as error:
        raise TlsOptionError(name, f": {path} {_unusable(name, error)}") from error
    except OSError as error:
        raise TlsOptionError(name, f": {path} cannot be read: {error.strerror or error}") from error
    except _EncryptedError:
        raise TlsOptionError(
            name,
            ": the key is encrypted, which OrbitMQ does not read: "
            "write it without a password (openssl pkey -in KEY -out PLAIN) "
            "into a file that only you can read",
        ) from None


class _EncryptedError(Exception):
    """OpenSSL asked for a password."""


def _no_password() -> str:
    raise _EncryptedError


def _unusable(name: str, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "and its key do not belong together"
    if name == "ca":
        return "holds no certificate in PEM form"
    return f"does not hold a certificate and its key in PEM form ({error.reason or error})"


def valid_until_ms(session: ssl.SSLObject) -> int:
    """When the certificate that the other side has shown ends, in milliseconds since the epoch."""
    certificate = session.getpeercert() or {}
    return int(ssl.cert_time_to_seconds(str(certificate["notAfter"]))) * 1000


def handshake_failure(error: BaseException, address: str, *, shows_certificate: bool) -> str:
    """One sentence about a TLS connection that failed.

    Args:
        error: the error that OpenSSL or the connection raised.
        shows_certificate: whether the client has a certificate to show.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unverified(error, address)
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if not reason or reason == "UNEXPECTED_EOF_WHILE_READING":
        return (
            f"{address} closed the connection during the TLS handshake: perhaps it does not speak TLS: "
            "leave out tls, or use its TLS port"
        )
    if reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return f"{address} does not speak TLS: leave out tls, or use its TLS port"
    if "UNKNOWN_CA" in reason:
        return f"{address} does not trust the authority of this client's certificate (Tls.cert)"
    if "CERTIFICATE_EXPIRED" in reason:
        return f"{address} says that this client's certificate (Tls.cert) has expired"
    if any(words in reason for words in _WANTS_CERTIFICATE):
        if shows_certificate:
            return f"{address} does not accept this client's certificate (Tls.cert): {_plain(reason)}"
        return (
            f"{address} asks for a certificate of the client: give Tls(cert=..., key=...): {_plain(reason)}"
        )
    return f"TLS with {address} failed: {_plain(reason)}"


def _unverified(error: ssl.SSLCertVerificationError, address: str) -> str:
    code, words = error.verify_code, error.verify_message.rstrip(".")
    if code in _UNKNOWN_AUTHORITY:
        return (
            f"the certificate of {address} is of an authority that this client does not trust: "
            f"give the authority's certificate as Tls(ca=...) ({words})"
        )
    if code == _EXPIRED:
        return f"the certificate of {address}, or of its authority, has expired: renew it there"
    if code == _NOT_YET:
        return f"the certificate of {address} is not valid yet: is the clock of this machine right?"
    if code in _OTHER_HOST:
        return (
            f"the certificate of {address} is for another host: connect by a name that it has, make one for "
            f"this address, or say Tls(check_host=False) ({words})"
        )
    return f"the certificate of {address} is not accepted: {words}"


def _plain(reason: str) -> str:
    return reason.lower().replace("_", " ")
