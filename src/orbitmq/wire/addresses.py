"""Addresses, ``host:port``: one parser and one form for servers, clients and tools.

A host is a name or an IP address. IPv6 is written in brackets, ``[::1]:9876``; without them, as RocketMQ
writes it, the last colon begins the port. The normal form of an IP address is the shortest one, so that texts
can be compared.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from orbitmq.wire.errors import WireError

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_DIGITS_AND_DOTS = re.compile(r"[0-9.]+")
_PORT = re.compile(r"[0-9]{1,5}")
_SEPARATORS = re.compile(r"[;,]")
_WEB = "http://"
_DNS = "dns://"
_WEB_PORT = 80
# The paths that an HTTP request line can carry without escapes.
_PATH = re.compile(r"/[!-~]{1,1000}")

_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


class AddressError(WireError, ValueError):
    """A text is not an address.

    Attributes:
        address: the text.
        hint: how to mend the text, as a clause that begins with a colon, or empty.
    """

    def __init__(self, address: str, hint: str = "") -> None:
        super().__init__(address, hint)
        self.address = address
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.address!r} is not host:port{self.hint}"


@dataclass(frozen=True, slots=True)
class AddressServer:
    """A web server whose answer to GET is the list of name servers (RocketMQ's address server)."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{_WEB}{joined(self.host, self.port)}{self.path}"


@dataclass(frozen=True, slots=True)
class DnsName:
    """A DNS name, each of whose addresses is a name server, all at one port (fetchNameSrvAddrByDnsLookup)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_DNS}{joined(self.host, self.port)}"


# The source of the name servers' addresses: a list of them, or a server or name that gives them.
Source = tuple[str, ...] | AddressServer | DnsName


def source(text: str) -> Source:
    """Read name servers as users write them.

    ``host:port;host:port`` lists them, ``http://host:port/path`` is an address server, ``dns://name:port``
    a name that is looked up.

    Raises:
        AddressError: the text has none of these forms.
    """
    written = text.strip()
    if written.startswith(_DNS):
        return DnsName(*split(written.removeprefix(_DNS).rstrip("/")))
    place, slash, rest = written.removeprefix(_WEB).partition("/")
    if written.startswith(_WEB) and rest:
        return _address_server(written, place, slash + rest)
    return tuple(several(text))


def _address_server(written: str, place: str, path: str) -> AddressServer:
    if not _PATH.fullmatch(path) or "#" in path:
        raise AddressError(written, ": the path of an address server has no blanks and no #")
    if place.endswith("]") or ":" not in place:
        place = f"{place}:{_WEB_PORT}"
    return AddressServer(*split(place), path)


def shown(name_servers: Source) -> str:
    """The text of :func:`source`, in its normal form."""
    return ";".join(name_servers) if isinstance(name_servers, tuple) else str(name_servers)


def several(text: str) -> list[str]:
    """Read addresses separated by semicolons or commas; repetitions, blanks and empty parts are left out.

    Raises:
        AddressError: a part is not an address.
    """
    parts = (part.strip() for part in _SEPARATORS.split(text))
    return list(dict.fromkeys(normal(part) for part in parts if part))


def normal(address: str) -> str:
    """The normal form of an address.

    Raises:
        AddressError: the text is not an address.
    """
    return joined(*split(address))


def split(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port.

    Raises:
        AddressError: the text is not ``host:port``.
    """
    host, colon, port = address.rpartition(":")
    if "://" in address:
        raise AddressError(address, f": write it without {address.partition('://')[0]}://")
    if not colon or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise AddressError(address, ": a port is 1 to 65535" if colon and port.isdecimal() else "")
    try:
        return normal_host(host), int(port)
    except ValueError as error:
        raise AddressError(address) from error


def normal_host(host: str) -> str:
    """The normal form of a host: a name in lower case, an IP address in its shortest form without brackets.

    Raises:
        ValueError: the text is neither a name nor an IP address.
    """
    if host.startswith("[") and host.endswith("]"):
        return _shortest(ipaddress.IPv6Address(host[1:-1]))
    if ":" in host:
        return _shortest(ipaddress.IPv6Address(host))
    if _DIGITS_AND_DOTS.fullmatch(host):
        return str(ipaddress.IPv4Address(host))
    if not _NAME.fullmatch(host):
        raise ValueError(f"{host!r} is neither a name nor an IP address")
    return host.lower()


def _shortest(address: ipaddress.IPv6Address) -> str:
    return str(address.ipv4_mapped or address)


def is_numeric(host: str) -> bool:
    """Whether a host in its normal form is an IP address."""
    return ":" in host or _DIGITS_AND_DOTS.fullmatch(host) is not None


def is_unspecified(host: str) -> bool:
    """Whether a host in its normal form stands for all addresses of a machine (0.0.0.0, ::)."""
    return is_numeric(host) and ipaddress.ip_address(host).is_unspecified


def is_of_one_machine(host: str) -> bool:
    """Whether a host in its normal form can be one machine's, to which others connect; True for a name."""
    if not is_numeric(host):
        return True
    address = ipaddress.ip_address(host)
    return not (address.is_unspecified or address.is_multicast or address == _BROADCAST)


def joined(host: str, port: int | str) -> str:
    """``host:port``, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can connect to a host in its normal form."""
    return host == "localhost" or (is_numeric(host) and ipaddress.ip_address(host).is_loopback)
