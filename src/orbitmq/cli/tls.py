"""``orbitmq tls``: a certificate authority of your own, and its certificates for servers and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.values import at_least
from orbitmq.cli.view import View
from orbitmq.runtime.imports import is_missing

if TYPE_CHECKING:
    from orbitmq.runtime.authority import Pair

MOST_DAYS = 36_500
INSTALL = "this command needs cryptography: pip install 'orbitmq[server]'"

app = make_app(
    "tls",
    "Make certificates for TLS, signed by an authority of your own. Files are PEM, keys without a password "
    "and readable by you only.",
    """
orbitmq tls make-ca ca
orbitmq tls make-cert ca mq-1 --host 10.0.0.5 --host mq-1
orbitmq tls make-cert ca app
""",
)

Host = Annotated[list[str] | None, Parameter(name=["--host"], negative=())]


@app.command(name="make-ca")
@command
def make_ca(name: str, /, *, days: int = 3650) -> View:
    """Make an authority: NAME.pem for the programs that trust it, NAME.key for signing.

    Args:
        name: Name of the authority and, with .pem and .key appended, of its files.
        days: Number of days for which it is valid.
    """
    _check(name, days)
    try:
        from orbitmq.runtime.authority import make_authority
    except ImportError as error:
        if not is_missing(error):
            raise
        raise UsageError(INSTALL) from error
    return _written(name, make_authority(_base(name), days, _now_ms()))


@app.command(name="make-cert")
@command
def make_cert(ca: str, name: str, /, *, host: Host = None, days: int = 365) -> View:
    """Make a certificate: NAME.pem and NAME.key, for a server or a client.

    Args:
        ca: Name of the authority, as given to make-ca.
        name: Name of the server or user and, with .pem and .key appended, of the files.
        host: Host name or IP address by which clients reach the server, for a broker brokerIP1. May be given
            more than once. Without one the certificate is a client's.
        days: Number of days for which it is valid.
    """
    _check(name, days)
    try:
        from orbitmq.runtime.authority import Pair, make_certificate
    except ImportError as error:
        if not is_missing(error):
            raise
        raise UsageError(INSTALL) from error
    authority = Pair(*(_of_authority(f"{ca}.{kind}", ca) for kind in ("pem", "key")))
    return _written(name, make_certificate(authority, _base(name), _hosts(host), days, _now_ms()))


def _check(name: str, days: int) -> None:
    at_least(1, days=days)
    if days > MOST_DAYS:
        raise UsageError(f"--days {days}: expected {MOST_DAYS} or fewer")
    if not 1 <= len(_base(name)) <= 64:
        raise UsageError(f"{name}: expected a name of 1 to 64 characters")


def _hosts(hosts: list[str] | None) -> list[str]:
    for host in hosts or ():
        if not host or not host.isascii() or " " in host or "://" in host:
            raise UsageError(f"--host {host}: expected a host name or an IP address")
    return hosts or []


def _base(name: str) -> str:
    """The name of the certificate: the name of its files without their folder."""
    return name.rpartition("/")[2]


def _now_ms() -> int:
    from orbitmq.runtime.system import system_runtime

    return system_runtime().clock.now_ms()


def _of_authority(path: str, name: str) -> bytes:
    from orbitmq.runtime.system import system_runtime

    try:
        return system_runtime().files.read_bytes(path)
    except FileNotFoundError as error:
        raise UsageError(f"there is no {path}: make the authority by orbitmq tls make-ca {name}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _written(name: str, made: Pair) -> View:
    from orbitmq.runtime.system import system_runtime

    files = system_runtime().files
    certificate, key = f"{name}.pem", f"{name}.key"
    for path in (certificate, key):
        if files.exists(path):
            raise UsageError(f"{path} is there already: give another name, or remove it")
    try:
        files.write_atomic(key, made.key, private=True)
        files.write_atomic(certificate, made.certificate)
    except OSError as error:
        raise UsageError(f"{error.filename or key}: {error.strerror or error}") from error
    return View(
        {"certificate": certificate, "key": key},
        lines=[f"wrote {certificate} and {key}"],
    )
