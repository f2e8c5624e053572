"""Protected mode: requests that a server without keys accepts only from its machine or from operators."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from orbitmq.auth.needs import ABOUT_USERS
from orbitmq.auth.rules import Network, address_of
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# Requests by which a client could take a server over, or destroy other clients' data. RocketMQ has no such
# protection.
DANGEROUS: Final = frozenset(
    {
        *ABOUT_USERS,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.CONSUME_MESSAGE_DIRECTLY,
        # A quota near 0 would stop all clients.
        Code.SET_QUOTA,
    }
)


class ProtectedMode:
    """Refuses dangerous requests from other machines.

    Args:
        admins: the networks of other machines that may make these requests.
        behind_proxies: whether clients connect through proxies: an address of this machine may be a local
            proxy's then, and proves nothing.
    """

    def __init__(self, admins: Sequence[Network], *, behind_proxies: bool) -> None:
        self._admins = admins
        self._behind_proxies = behind_proxies

    def check(self, code: int, host: str, own_host: str) -> None:
        """Refuse a dangerous request unless it comes from this machine, or from one of the operator's.

        Args:
            host: the peer's address.
            own_host: this server's address on the connection.

        Raises:
            RemotingError: NO_PERMISSION; the remark names the remedies.
        """
        address = address_of(host)
        if address is not None:
            near = address.is_loopback or address == address_of(own_host)
            if near and not self._behind_proxies:
                return
            if any(address in network for network in self._admins):
                return
        raise RemotingError(
            ResponseCode.NO_PERMISSION,
            f"request {code} from {host} is refused (protectedMode): this server requires no keys. "
            "Send it from the server's own machine, name your address in adminAddresses, or set "
            "authenticationEnabled=true; protectedMode=false serves it to everybody",
        )


def protected_mode(is_on: bool, admins: str, proxies: str) -> ProtectedMode | None:
    """The protected mode of a server's settings; None if it is off.

    Args:
        admins: the setting ``adminAddresses``, which was checked when it was read.
        proxies: the setting ``proxyProtocolTrusted``.
    """
    if not is_on:
        return None
    networks = [ipaddress.ip_network(one) for one in admins.split(";") if one]
    return ProtectedMode(networks, behind_proxies=bool(proxies))
