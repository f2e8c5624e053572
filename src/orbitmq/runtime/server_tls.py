"""TLS of a server: which connections must use it, and its certificate, which is read again when it
changes."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StartError
from orbitmq.runtime.certificate_end import ends_at_ms
from orbitmq.runtime.client_names import NamePart
from orbitmq.runtime.imports import is_missing
from orbitmq.runtime.turns import Turns

if TYPE_CHECKING:
    import asyncio

    from orbitmq.runtime.seam import Runtime

log = logging.getLogger("orbitmq.tls")

# A connection that is opened this long after the files were last read lets them be read again.
LOOK_SECONDS: Final = 1.0
WARN_DAYS: Final = 30
# The keys of the settings that name the files; the gRPC ports have their own for the first two.
KEYS: Final = ("tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath")
_DAY_MS = 86_400_000


class TlsMode(Enum):
    """The values of ``tls.server.mode``: which connections are served."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """The values of ``tls.server.need.client.auth``: whether clients are asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a server, PEM each.

    Attributes:
        cert, key: of the server; the certificate may be a chain, the key PKCS#1 or PKCS#8. Empty: no file.
        password: of the key; empty: it has none.
        authorities: of clients' certificates; empty: clients are not asked for certificates.
        required: whether a client without a certificate is refused.
    """

    cert: str = ""
    key: str = ""
    password: str = ""
    authorities: str = ""
    required: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are configured."""
        return tuple(path for path in (self.cert, self.key, self.authorities) if path)


class ServerTls:
    """The TLS of one server, for all its ports.

    Changed files take effect for connections that are opened a second later. A certificate whose key has not
    changed yet, or that cannot be read, leaves the one before in place, with one warning.

    Args:
        made_for: the hosts for which the server makes a certificate itself at the start, if there are no
            files; empty: it makes none.
        protocols: offered to clients that ask for a protocol (ALPN).
        keys: the settings that name the certificate, its key and the authorities, for errors.
        names: the part of a client's certificate that is the name of a user.

    Attributes:
        mode: which connections are served.
        files, names: as given.
        turns: the queue of handshake steps of all ports.
        ends_ms: when the certificate in use ends, milliseconds since the epoch; ``None``: there is none, or
            its end cannot be read.
    """

    def __init__(
        self,
        runtime: Runtime,
        mode: TlsMode = TlsMode.PERMISSIVE,
        files: CertificateFiles = CertificateFiles(),
        made_for: Sequence[str] = (),
        protocols: Sequence[str] = (),
        keys: tuple[str, str, str] = KEYS,
        names: NamePart = NamePart.OFF,
    ) -> None:
        self._runtime = runtime
        self.mode = mode
        self.files = files
        self.names = names
        self.turns = Turns()
        self._made_for = tuple(made_for)
        self._protocols = tuple(protocols)
        self._keys = keys
        self.ends_ms: int | None = None
        self._warned_ms = 0
        self._contents: tuple[bytes, ...] = ()
        self._context: ssl.SSLContext | None = None
        self._looked = 0.0
        self._looking: asyncio.Future[tuple[bytes, ...]] | None = None
        self._complaint = ""

    @property
    def serves(self) -> bool:
        """Whether there is a certificate for clients with TLS."""
        return self.mode is not TlsMode.DISABLED and bool(self.files.cert or self._made_for)

    def check(self) -> None:
        """Read the files, or make the certificate, so that mistakes are found at the start.

        Raises:
            StartError: the certificate cannot be used.
        """
        if not self.serves:
            return
        try:
            self._take(self._read() if self.files.cert else self._self_signed())
        except ImportError as error:
            if not is_missing(error):
                raise
            raise StartError(
                f"tls.test.mode.enable=true makes a certificate, for which {error.name} is not installed: "
                "pip install 'orbitmq[server]'"
            ) from error
        except OSError as error:  # ssl.SSLError is one too
            raise StartError(self._unusable(error)) from error

    def context(self) -> ssl.SSLContext:
        """The context for one connection. Call :meth:`check` before the first one."""
        if self._context is None:
            raise RuntimeError("the certificate was not read at the start")
        now = self._runtime.clock.monotonic()
        if self.files.cert and self._looking is None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            # Read in a thread: a file system that hangs must not hold up the event loop.
            self._looking = self._runtime.threads.run(self._read)
            self._looking.add_done_callback(self._read_again)
        return self._context

    # -- files -------------------------------------------------------------------------------------------

    def _read(self) -> tuple[bytes, ...]:
        return tuple(self._runtime.files.read_bytes(path) for path in self.files.paths)

    def _read_again(self, done: asyncio.Future[tuple[bytes, ...]]) -> None:
        self._looking = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            contents = done.result()
            if contents == self._contents:
                self._complaint = ""
                if self._runtime.clock.now_ms() - self._warned_ms >= _DAY_MS:
                    self._warn_of_end()
                return
            try:
                self._take(contents)
            except OSError as unusable:
                error = unusable
            else:
                self._complaint = ""
                log.info("the certificate in %s has changed: new connections get it", self.files.cert)
                return
        # Files are replaced one after the other: a pair that is half changed now will be complete at the next
        # read.
        text = self._unusable(error)
        if text != self._complaint:
            self._complaint = text
            log.warning("%s; connections get the certificate from before", text)

    def _take(self, contents: tuple[bytes, ...]) -> None:
        """Make the context of these contents.

        Raises:
            ssl.SSLError: the contents cannot be used.
        """
        # Only servers with a certificate import this module.
        from orbitmq.runtime.tls import server_context

        files = self.files
        context = server_context(
            contents[0],
            contents[1],
            self._protocols,
            password=files.password,
            authorities=contents[2] if files.authorities else b"",
            required=files.required,
        )
        self._context, self._contents = context, contents
        self._looked = self._runtime.clock.monotonic()
        self.ends_ms = _ends_at_ms(contents[0])
        self._warn_of_end()

    def _self_signed(self) -> tuple[bytes, ...]:
        from orbitmq.runtime.certificates import self_signed

        pem = self_signed(self._made_for, self._runtime.clock.now_ms())
        authorities = self.files.authorities
        return (pem, pem, self._runtime.files.read_bytes(authorities)) if authorities else (pem, pem)

    def _warn_of_end(self) -> None:
        """Warn of a certificate that has ended, or ends soon; once a day while clients come."""
        self._warned_ms = self._runtime.clock.now_ms()
        if self.ends_ms is None:
            return
        days = (self.ends_ms - self._warned_ms) // _DAY_MS
        if days < 0:
            log.warning("the certificate in %s has expired: clients refuse it, renew it", self.files.cert)
        elif days < WARN_DAYS:
            log.warning("the certificate in %s expires in %d days: renew it", self.files.cert, days)

    def _unusable(self, error: BaseException) -> str:
        files = self.files
        certificate, key, authorities = self._keys
        given = f"{certificate}={files.cert}, {key}={files.key}"
        if files.authorities:
            given += f", {authorities}={files.authorities}"
        if isinstance(error, ssl.SSLError):
            return f"{given}: {_reason(error)}"
        if isinstance(error, OSError):
            return f"{given}: {error.filename or 'a file'} cannot be read: {error.strerror or error}"
        return f"{given}: {error}"


def _ends_at_ms(certificate: bytes) -> int | None:
    try:
        return ends_at_ms(certificate)
    except ValueError:
        return None  # OpenSSL reads the certificate, and ``ends_at_ms`` does not


def _reason(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the key do not belong together"
    from orbitmq.runtime.tls import UnusableError

    if isinstance(error, UnusableError):
        return error.reason
    return f"these are not a certificate and its key in PEM form ({error.reason or error})"
