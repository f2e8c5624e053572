"""The links of this broker, as membership uses them."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.signs import heartbeat_s
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.members import lease
from orbitmq.runtime.seam import Clock


class Links:
    """The HA connections of this broker: those of slaves that copy its log, and the one to its master."""

    def __init__(
        self, clock: Clock, config: BrokerConfig, port: HaPort, ha_client: HaClient, peers: Peers
    ) -> None:
        self._clock = clock
        self._config = config
        self._port = port
        self._ha_client = ha_client
        self._peers = peers

    def copies(self, broker_id: int, host: str) -> bool:
        """Whether the member copies this broker's log; ``host`` identifies a member whose link has no id
        (PO-07)."""
        if any(not link.is_master and link.broker_id == broker_id for link in self._peers.links):
            return True
        # A broker of OrbitMQ sends its id, and is among the peers as soon as its tables can be asked for.
        return any(
            each.host == host and each.sender is not None and each.hello is None
            for each in self._port.connections
        )

    def master_heartbeat_s(self) -> float:
        """How often the master sends a heartbeat, in seconds."""
        return heartbeat_s(self._config, stream=any(link.is_master for link in self._peers.links))

    def master_silence_s(self) -> float | None:
        """Seconds since the last bytes from the master over the link; ``None`` without a link."""
        link = self._ha_client.link
        return None if link is None else self._clock.monotonic() - link.last_read

    def tell_leaving(self) -> None:
        """Tell all followers that this broker leads no more and is stopping."""
        for link in self._peers.links:
            if not link.is_master:
                link.send(FrameKind.HAND_OVER, b"")

    def ask_lease(self, number: int, term: int) -> None:
        """Ask all followers to leave the background work to this broker, see ``lease``."""
        for link in self._peers.links:
            if not link.is_master:
                link.send(FrameKind.LEASE_ASKED, lease.question(number, term))

    def ask_take_over(self) -> None:
        """Ask the master whether this broker may do its background work."""
        for link in self._peers.links:
            if link.is_master:
                link.send(FrameKind.TAKE_OVER, b"")
