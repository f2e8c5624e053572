"""The certificate of the gRPC ports: the configured one, or one that the broker makes for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.runtime.paths import joined
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import KEYS, CertificateFiles, ServerTls, TlsMode
from orbitmq.runtime.turns import Turns

if TYPE_CHECKING:
    import ssl

# gRPC clients request HTTP/2 by this name; Java's clients disconnect when the server does not select it.
ALPN = ("h2",)


class Certificate:
    """The certificate of the gRPC ports.

    It is read from ``tlsCertPath`` and ``tlsKeyPath``, else from the files of the broker's own TLS
    (``tls.server.certPath``), and again when the files change. Without either setting the broker makes a
    self-signed one for its first TLS client, and keeps it beside the data, readable by its own user only;
    ``tlsTestModeEnable=false`` forbids that. The settings of the broker's own TLS decide whether clients need
    TLS and a certificate.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, tls: ServerTls) -> None:
        self._runtime = runtime
        self._config = config
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        asked, path = tls.files, config.tls_cert_path
        files = CertificateFiles(
            path, config.tls_key_path, authorities=asked.authorities, required=asked.required
        )
        keys = ("tlsCertPath", "tlsKeyPath", KEYS[2])
        self._named = ServerTls(runtime, tls.mode, files, protocols=ALPN, keys=keys) if path else None

    @property
    def ends_ms(self) -> int | None:
        """When the certificate of ``tlsCertPath`` expires, milliseconds since the epoch."""
        return None if self._named is None else self._named.ends_ms

    @property
    def turns(self) -> Turns:
        """The queue of TLS handshake steps that all ports of the broker share."""
        return self._tls.turns

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
        """Read the certificate of ``tlsCertPath``, so that a bad file is found at the broker's start.

        Raises:
            StartError: the certificate cannot be used.
        """
        if self._named is not None:
            self._named.check()

    def context(self) -> ssl.SSLContext:
        """The TLS context of the certificate.

        Raises:
            StartError: there is no certificate, and the broker may not make one.
            ImportError: the broker has to make a certificate, and ``cryptography`` is not installed.
            OSError: the new certificate cannot be written to its file.
        """
        if self._named is not None:
            return self._named.context()
        if self._tls.serves:
            return self._tls.context()
        if self._context is None:
            self._context = self._made()
        return self._context

    def _made(self) -> ssl.SSLContext:
        from orbitmq.runtime.tls import server_context

        pem, asked = self._self_signed(), self._tls.files
        authorities = self._runtime.files.read_bytes(asked.authorities) if asked.authorities else b""
        return server_context(pem, pem, ALPN, authorities=authorities, required=asked.required)

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
