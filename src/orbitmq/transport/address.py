"""Addresses as the protocol writes them."""

from __future__ import annotations

from orbitmq.transport.errors import ConnectError


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port"; an IPv6 host may stand in brackets.

    Raises:
        ConnectError: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConnectError(f"address {address!r} is not host:port", address)
    return host.strip("[]"), int(port)
