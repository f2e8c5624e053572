"""Settings that all brokers of one name must share, and the warning when they differ.

With different settings two brokers may do the background work at once, or no broker does it: from these
settings the fence and the lease compute when a lost leader's right runs out, and which brokers must promise
not to lead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orbitmq.broker.config import BrokerConfig

log = logging.getLogger(__name__)

ACTING = "enableSlaveActingMaster"
KEYS = (
    "enableRemoteEscape",
    "totalReplicas",
    "brokerNotActiveTimeoutMillis",
    "syncBrokerMemberGroupPeriod",
)
MAX_LOGGED = 100


def alike(config: BrokerConfig) -> dict[str, str]:
    """The settings of a broker that must be equal on all brokers of its name."""
    own = config.to_properties()
    # The other settings only matter with acting masters.
    return {key: own[key] for key in (ACTING, *(KEYS if config.enable_slave_acting_master else ()))}


class Comparison:
    """Warns once for each difference.

    Attributes:
        logged: the last warning about each other broker, by its address.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.logged: dict[str, str] = {}

    def compare(self, address: str, theirs: Mapping[str, str]) -> None:
        """Compare with the settings of another broker of the name; a broker of an older build sends none."""
        ours = alike(self._config)
        different = [
            f"{key} is {theirs[key]} at {address} and {value} here"
            for key, value in ours.items()
            if theirs.get(key, value) != value
        ]
        text = ", ".join(different)
        if text == self.logged.get(address, ""):
            return
        # A peer may claim any address, so the number of remembered addresses is limited.
        if len(self.logged) >= MAX_LOGGED:
            self.logged.clear()
        self.logged[address] = text
        if text:
            log.warning("%s: all brokers of %s need the same", text, self._config.broker_name)


class HeadCount:
    """Warns when more brokers have one name than the setting totalReplicas allows."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._counted = config.total_replicas

    def note_members(self, members: int) -> None:
        """Note how many brokers the name has, this one included."""
        if members <= self._counted:
            return
        self._counted = members
        log.warning(
            "%d brokers of %s run and totalReplicas is %d: no broker asks all of them for the lead; "
            "set it to their number on each of them",
            members,
            self._config.broker_name,
            self._config.total_replicas,
        )
