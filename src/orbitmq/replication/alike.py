"""Settings that all brokers of a name need alike, and what is said when they are not.

With other ones two brokers may do the background work at once, or none does: the times after which a lost
leader's right has run out, and who has to promise not to lead, are counted from them (fence, lease).
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
MAX_TOLD = 100


def alike(config: BrokerConfig) -> dict[str, str]:
    """The settings of a broker that the others of its name have to have too."""
    own = config.to_properties()
    # Without acting masters the others have no meaning.
    return {key: own[key] for key in (ACTING, *(KEYS if config.enable_slave_acting_master else ()))}


class Comparison:
    """Says once what differs.

    Attributes:
        told: what was said last, by the address of the other.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.told: dict[str, str] = {}

    def compare(self, address: str, theirs: Mapping[str, str]) -> None:
        """Another broker of the name told its settings; one of an older build tells none."""
        ours = alike(self._config)
        different = [
            f"{key} is {theirs[key]} at {address} and {value} here"
            for key, value in ours.items()
            if theirs.get(key, value) != value
        ]
        text = ", ".join(different)
        if text == self.told.get(address, ""):
            return
        # A peer may give any address, so their number is limited.
        if len(self.told) >= MAX_TOLD:
            self.told.clear()
        self.told[address] = text
        if text:
            log.warning("%s: all brokers of %s need the same", text, self._config.broker_name)


class HeadCount:
    """Says when there are more brokers of a name than its settings know."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._counted = config.total_replicas

    def look(self, members: int) -> None:
        """Note how many brokers the name has, this one included."""
        if members <= self._counted:
            return
        self._counted = members
        log.warning(
            "%d brokers of %s are there and totalReplicas is %d: nobody asks all of them who leads; "
            "set it to their number on each of them",
            members,
            self._config.broker_name,
            self._config.total_replicas,
        )
