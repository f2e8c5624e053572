"""The identity of a client: its keys and its TLS. Each connection has exactly one identity."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.errors import ValidationError
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import Buffer
from orbitmq.transport.errors import CredentialsError
from orbitmq.wire.command import Command
from orbitmq.wire.signing import ACCESS_KEY, Credentials, CredentialsSource, Signer, check_source


@dataclass(frozen=True, slots=True)
class Identity:
    """The keys and the TLS of a client. Clients with equal identities can share a connection.

    Attributes:
        credentials: the keys, or a function that is called for each request and returns them.
        tls: the client's TLS; None without TLS.

    Raises:
        ValidationError: ``credentials`` is neither credentials nor a function, or ``tls`` is not a
            :class:`Tls`.
    """

    credentials: CredentialsSource | None = None
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if self.credentials is not None:
            check_source(self.credentials)
        if self.tls is not None and not isinstance(self.tls, Tls):
            raise ValidationError(f"tls must be Tls(ca=..., cert=..., key=...), got {self.tls!r:.80}")

    def signer(self) -> Signer | None:
        """The signer of the client's requests; None for a client without keys."""
        return None if self.credentials is None else Signer(self.credentials)

    def command(self, code: int, fields: dict[str, str]) -> Command:
        """A request that names this identity's user, for the texts of errors."""
        source = self.credentials
        named = {ACCESS_KEY: source.access_key} if isinstance(source, Credentials) else {}
        return Command(code, {**fields, **named})

    @property
    def hint(self) -> str:
        """A likely reason why a server closed the connection without an answer."""
        if self.tls is None:
            return "; it may ask for TLS: give tls=Tls(ca=...)"
        if self.tls.cert is None:
            return "; it may ask for a certificate of the client: give Tls(cert=..., key=...)"
        return "; it may not accept this client's certificate (Tls.cert)"


NOBODY = Identity()


def sign(signer: Signer, command: Command, address: str, body: Buffer | None = None) -> None:
    """Sign a request to ``address``.

    Raises:
        CredentialsError: the user's function returned no credentials.
        FrameError: a field has no UTF-8 form.
    """
    try:
        credentials = signer.credentials()
    except Exception as error:
        text = f"no credentials for the request to {address}: {type(error).__name__}: {error}"
        raise CredentialsError(text, address) from error
    signer.sign(command, credentials, body)
