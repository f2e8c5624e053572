"""The state of replication as administrators see it (HAService.getRuntimeInfo)."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.broker.role import Role, RoleState
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.replication.link.ha_port import HaConnection, HaPort
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.ha import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo


class ReplicationStatus:
    """Reads the state of the HA port and of the link to the master.

    Attributes:
        master_flush_offset: the end of the master's log, as an administrator has set it.
    """

    def __init__(
        self,
        clock: Clock,
        role: RoleState,
        store: MessageStore,
        port: HaPort,
        ha_client: HaClient,
    ) -> None:
        self._clock = clock
        self._role = role
        self._store = store
        self._port = port
        self._ha_client = ha_client
        self.master_flush_offset = 0

    def table(self) -> HARuntimeInfo:
        """The state by RocketMQ's names."""
        end = self._store.max_commit_log_offset
        self._port.shared.replicas.judge(self._clock.monotonic())
        if not self._role.takes_messages:
            return HARuntimeInfo(ha_client_runtime_info=self._follower(end))
        followers = [self._one(each, end) for each in self._port.connections if each.sender is not None]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(each.in_sync for each in followers),
            ha_connection_info=followers,
        )

    def lines(self) -> dict[str, str]:
        """Lines of brokerStatus."""
        end, ha_client = self._store.max_commit_log_offset, self._ha_client
        followers = [self._one(each, end) for each in self._port.connections if each.sender is not None]
        cutting = ha_client.ours.truncation
        return {
            "haFollowers": str(len(followers)),
            "haFollowersBehindBytes": str(max((each.diff for each in followers), default=0)),
            "haMaster": ha_client.link.address if ha_client.link is not None else "",
            "haTransferring": str(ha_client.transferring).lower(),
            "haReceivedOffset": str(ha_client.received),
            "haSetAsideTimes": str(cutting.times),
            "haSetAsideBytes": str(cutting.size_bytes),
        }

    def unready(self) -> Sequence[str]:
        """Why clients should not read here: this slave is not linked with a master."""
        ha_client = self._ha_client
        if self._role.role is not Role.SLAVE or ha_client.transferring:
            return ()
        master = ha_client.master_address or ha_client.ha_address
        if master is None:
            return ["no master: no name server shows one of this name"]
        return [f"no master: nothing is copied from {master}"]

    def _one(self, follower: HaConnection, end: int) -> HAConnectionRuntimeInfo:
        assert follower.sender is not None
        state = follower.state
        has = state.received if state is not None else -1
        return HAConnectionRuntimeInfo(
            addr=follower.address,
            slave_ack_offset=has,
            diff=end - has,
            in_sync=state is not None and state.in_sync,
            transferred_byte_in_second=follower.sender.rate,
            transfer_from_where=follower.sender.cursor.position,
        )

    def _follower(self, end: int) -> HAClientRuntimeInfo:
        link = self._ha_client.link
        shown = HAClientRuntimeInfo(
            master_addr=link.address if link is not None else self._ha_client.ha_address,
            max_offset=end,
            master_flush_offset=self.master_flush_offset or self._ha_client.master_flushed,
        )
        if link is not None:
            behind = self._clock.now_ms() - int(self._clock.monotonic() * 1000)
            shown.transferred_byte_in_second = link.rate
            shown.last_read_timestamp = int(link.last_read * 1000) + behind
            shown.last_write_timestamp = int(link.last_write * 1000) + behind
        return shown
