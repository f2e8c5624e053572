"""Checks requests by a server's gate and its protected mode, and logs their refusals."""

from __future__ import annotations

import logging

from orbitmq.auth.gate import AuthGate, Sender
from orbitmq.auth.protected import DANGEROUS, ProtectedMode
from orbitmq.auth.refusals import WRONG_KEYS, GateError
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.transport.audit import Audit, AuditRefusal
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import named_user


class Guard:
    """Checks each request before a server's handlers get it. Addresses with many wrong signatures are slowed.

    Args:
        protected: checks requests that no gate has permitted; None if protected mode is off.
        log: gets at most one line a second about refusals.

    Attributes:
        gate: checks keys and rights; None if the server requires no keys.
        audit: writes changes and refusals to the audit log; None without one.
    """

    def __init__(
        self, gate: AuthGate | None, protected: ProtectedMode | None, log: logging.Logger, clock: Clock
    ) -> None:
        self.gate = gate
        self.audit: Audit | None = None
        self._clock = clock
        self._protected = protected
        self._log = LogLimiter(log)

    @property
    def guards(self) -> bool:
        """See :class:`orbitmq.transport.server.Watch`."""
        return self.gate is not None

    def knows(self, command: Command) -> bool:
        """See :class:`orbitmq.transport.server.Watch`."""
        return self.gate is None or self.gate.knows(command)

    def trusts(self, connection: ServerConnection) -> bool:
        """See :class:`orbitmq.transport.server.Watch`."""
        return self.gate is None or self.gate.serves(connection.certificate.user)

    def pause_s(self, address: str) -> float:
        """See :class:`orbitmq.transport.server.Watch`."""
        return 0.0 if self.gate is None else self.gate.slowing.left(address, self._clock.monotonic())

    def recheck(self, connection: ServerConnection, command: Command) -> None:
        """See :class:`orbitmq.transport.server.Watch`."""
        self.check(connection, command, verified=True)

    def check(
        self, connection: ServerConnection, command: Command, *, verified: bool = False
    ) -> Sender | None:
        """Refuse a request that its sender may not make.

        Args:
            verified: whether the request's signature was checked when it arrived.

        Returns:
            The sender whose keys or certificate the request has; None without a known one.

        Raises:
            RemotingError: NO_PERMISSION.
            WireError: a field or body that names the request's target is missing or cannot be read.
        """
        host, certificate = connection.remote[0], connection.certificate
        command.certified = certificate.user
        try:
            sender = None
            if self.gate is not None:
                sender = self.gate.check(command, host, verified=verified, unnamed=certificate.problem)
            if sender is None and self._protected is not None and command.code in DANGEROUS:
                self._protected.check(command.code, host, connection.local[0])
        except RemotingError as error:
            self._log.write(
                logging.WARNING,
                "not permitted",
                "request %d from %s is refused: %r",
                command.code,
                connection.remote_address,
                error.remark,
            )
            if self.audit is not None:
                self.audit.refused(AuditRefusal(named_user(command), host, command.code, error.remark))
            if isinstance(error, GateError) and error.refusal.why == WRONG_KEYS:
                pause_s = self._wrong(host)
                if pause_s:
                    connection.rest(pause_s)
            raise
        connection.trust()
        return sender

    def _wrong(self, host: str) -> float:
        """Count a wrong signature from this address; returns the pause of its connection in seconds."""
        return 0.0 if self.gate is None else self.gate.slowing.wrong(host, self._clock.monotonic())
