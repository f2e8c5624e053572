"""The certificate that gRPC clients are shown: the user's, or one that the broker makes for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.runtime.paths import joined
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import ServerTls, TlsMode

if TYPE_CHECKING:
    import ssl

# gRPC clients ask for HTTP/2 by this name, and Java's go away without an answer.
ALPN = ("h2",)


class Certificate:
    """The certificate of the gRPC ports: read or made for the first TLS client, then kept.

    ``tlsCertPath`` and ``tlsKeyPath``, else that of the broker's own TLS (``tls.server.certPath``); without
    them a self-signed one, made once and kept beside the data, readable by this user only.
    ``tlsTestModeEnable=false`` forbids that. Who is served, and whose certificates are asked for, is said by
    the broker's own TLS.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, tls: ServerTls) -> None:
        self._runtime = runtime
        self._config = config
        self._tls = tls
        self._context: ssl.SSLContext | None = None

    @property
    def enforced(self) -> bool:
        """Whether clients without TLS are refused."""
        return self._tls.mode is TlsMode.ENFORCING

    @property
    def disabled(self) -> bool:
        """Whether clients with TLS are refused."""
        return self._tls.mode is TlsMode.DISABLED

    @property
    def _own_path(self) -> str:
        return joined(self._config.store_path_root_dir, "tls", "self-signed.pem")

    def check(self) -> None:
        """Read the user's certificate, if there is one, so that a wrong one is found at the start.

        Raises:
            StartError: it cannot be used.
        """
        if self._config.tls_cert_path and not self.disabled:
            self.context()

    def context(self) -> ssl.SSLContext:
        """The TLS context of the certificate.

        Raises:
            StartError: the user's certificate cannot be used, or there is none and none may be made.
            ImportError: one is to be made, and ``cryptography`` is not installed.
            OSError: the one that was made cannot be kept.
        """
        if self._tls.serves and not self._config.tls_cert_path:
            return self._tls.context()
        if self._context is None:
            self._context = self._made()
        return self._context

    def _made(self) -> ssl.SSLContext:
        import ssl

        certificate, key = self._config.tls_cert_path, self._config.tls_key_path
        files = self._runtime.files
        if not certificate:
            pem = self._self_signed()
            return self._context_of(pem, pem)
        try:
            return self._context_of(files.read_bytes(certificate), files.read_bytes(key))
        except OSError as error:
            # ssl.SSLError is one too.
            why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise StartError(
                f"tlsCertPath={certificate}, tlsKeyPath={key}: {why or error}; give a certificate and its "
                "key without a password, both in PEM"
            ) from error

    def _context_of(self, certificate: bytes, key: bytes) -> ssl.SSLContext:
        from orbitmq.runtime.tls import server_context

        asked = self._tls.files
        authorities = self._runtime.files.read_bytes(asked.authorities) if asked.authorities else b""
        return server_context(certificate, key, ALPN, authorities=authorities, required=asked.required)

    def _self_signed(self) -> bytes:
        files, path = self._runtime.files, self._own_path
        if files.exists(path):
            return files.read_bytes(path)
        if not self._config.tls_test_mode:
            raise StartError(
                "there is no certificate: set tlsCertPath and tlsKeyPath, or tlsTestModeEnable=true for a "
                "self-signed one"
            )
        from orbitmq.runtime.certificates import self_signed

        names = (self._config.broker_ip1, self._runtime.host.name, "localhost", "127.0.0.1")
        pem = self_signed([name for name in names if name], self._runtime.clock.now_ms())
        files.write_atomic(path, pem, private=True)
        return pem
