"""Makes and checks endpoints, the addresses in routes under which clients find this broker."""

from __future__ import annotations

import ipaddress

from orbitmq.gateway import schema
from orbitmq.gateway.messages import new
from orbitmq.gateway.schema import AddressScheme
from orbitmq.gateway.status import Code, RefusalError

MAX_HOST = 253  # characters
MAX_PORT = 65_535


def endpoints(host: str, port: int) -> schema.Endpoints:
    """The endpoints of one address."""
    address = new(schema.Address, host=host, port=port)
    return new(schema.Endpoints, scheme=_scheme(host), addresses=[address])


def of_client(asked: schema.Endpoints, host: str, port: int) -> schema.Endpoints:
    """The endpoints for a client of this broker: the address that it used, if it names a single one.

    A client behind a mapped port, or outside a container, keeps the address that works for it.

    Args:
        host, port: the address that this broker advertises.
    """
    if len(asked.addresses) != 1:
        return endpoints(host, port)
    if asked.scheme != AddressScheme.UNSPECIFIED:
        return asked
    used = asked.addresses[0]
    return endpoints(used.host, used.port)


def check(asked: schema.Endpoints) -> None:
    """Check the addresses in a client's endpoints.

    Raises:
        RefusalError: ILLEGAL_ACCESS_POINT, one of them is not an address.
    """
    for each in asked.addresses:
        _check(each)


def _check(address: schema.Address) -> None:
    host = address.host
    if not host.strip() or len(host) > MAX_HOST or any(ord(char) <= 32 for char in host):
        raise RefusalError(
            Code.ILLEGAL_ACCESS_POINT,
            f"endpoints: host {host[:64]!r} of {len(host)} characters; 1 to {MAX_HOST} without blanks",
        )
    if not 0 < address.port <= MAX_PORT:
        raise RefusalError(
            Code.ILLEGAL_ACCESS_POINT, f"endpoints: port {address.port} of {host}, limits 1 to {MAX_PORT}"
        )


def _scheme(host: str) -> AddressScheme:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPV4 if address.version == 4 else AddressScheme.IPV6
