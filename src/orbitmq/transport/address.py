"""Reads the addresses of other hosts, with the errors of the transport."""

from __future__ import annotations

from orbitmq.transport.errors import ConnectError
from orbitmq.wire import addresses


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port", see :mod:`orbitmq.wire.addresses`.

    Raises:
        ConnectError: the text does not have that form.
    """
    try:
        return addresses.split(address)
    except addresses.AddressError as error:
        raise ConnectError(f"address {error}", address) from error
