"""The state of a running broker (AdminBrokerProcessor.prepareRuntimeInfo, HAService.getRuntimeInfo)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Rates, Stats
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.ha import HAClientRuntimeInfo, HARuntimeInfo
from orbitmq.wire.command import PROTOCOL_VERSION

VERSION_TEXT = "V5_3_3"


class RuntimeInfo:
    """The state of a broker, with all of RocketMQ's figures that make sense without thread pools.

    Args:
        more: lines added by attached parts.
    """

    def __init__(
        self,
        role: RoleState,
        runtime: Runtime,
        store: MessageStore,
        stats: Stats,
        long_polling: LongPolling,
        more: Sequence[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        self._role = role
        self._runtime = runtime
        self._store = store
        self._stats = stats
        self._long_polling = long_polling
        self._more = more

    def ha_status(self) -> HARuntimeInfo:
        """The state of replication: this broker has no replicas and follows no master."""
        end = self._store.max_commit_log_offset
        if not self._role.takes_messages:
            return HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(max_offset=end))
        return HARuntimeInfo(master=True, master_commit_log_max_offset=end)

    def table(self) -> dict[str, str]:
        """The state, under RocketMQ's names."""
        state: dict[str, int | float | str] = {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": PROTOCOL_VERSION,
            "brokerActive": str(self._role.leads).lower(),
            "startAcceptSendRequestTimeStamp": 0,
            "waitingPulls": len(self._long_polling),
        }
        # mqadmin reads these keys without checking that they exist; OrbitMQ has no request queues.
        for name in ("send", "pull", "litePull", "query", "ack"):
            state[f"{name}ThreadPoolQueueSize"] = 0
            state[f"{name}ThreadPoolQueueCapacity"] = 0
            state[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        state |= {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 0}
        state |= {"timerEnqueueTps": 0.0, "timerDequeueTps": 0.0}
        state |= self._disk_state() | self._totals() | self._times()
        for lines in self._more:
            state |= lines()
        return {key: str(value) for key, value in state.items()}

    def _disk_state(self) -> dict[str, int | float | str]:
        store, files = self._store, self._runtime.files
        folder = store.config.commit_log_path
        ratio = round(files.disk_used_ratio(folder), 4)
        total, free = files.disk_bytes(folder)
        return {
            "earliestMessageTimeStamp": store.earliest_store_time,
            "commitLogMinOffset": store.min_commit_log_offset,
            "commitLogMaxOffset": store.max_commit_log_offset,
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{folder}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
            "remainHowManyDataToFlush": _size(store.max_commit_log_offset - store.flushed_offset),
            "remainTransientStoreBufferNumbs": 0,
            "dispatchMaxBuffer": 0,
            "dispatchBehindBytes": 0,
            "pageCacheLockTimeMills": 0,
        }

    def _totals(self) -> dict[str, int | float | str]:
        stats, counters = self._stats, self._stats.counters
        taken = self._store.max_commit_log_offset - stats.started_offset
        return {
            "msgPutTotalYesterdayMorning": stats.yesterday_morning[0],
            "msgPutTotalTodayMorning": stats.this_morning[0],
            "msgPutTotalTodayNow": counters.messages_in,
            "msgGetTotalYesterdayMorning": stats.yesterday_morning[1],
            "msgGetTotalTodayMorning": stats.this_morning[1],
            "msgGetTotalTodayNow": counters.messages_out,
            "putMessageTimesTotal": counters.messages_in,
            "putMessageFailedTimes": counters.failed,
            "putMessageSizeTotal": taken,
            "putMessageAverageSize": taken / max(1, counters.messages_in),
        }

    def _times(self) -> dict[str, int | float | str]:
        stats, counters = self._stats, self._stats.counters
        rates, times = stats.rates, counters.put_times
        return {
            "bootTimestamp": stats.started_ms,
            "runtime": _span((self._runtime.clock.now_ms() - stats.started_ms) // 1000),
            "putTps": rates.text(Rates.PUT),
            "getFoundTps": rates.text(Rates.FOUND),
            "getMissTps": rates.text(Rates.MISSED),
            "getTotalTps": rates.text(Rates.FOUND, Rates.MISSED),
            "getTransferredTps": rates.text(Rates.TRANSFERRED),
            "putMessageDistributeTime": times.text(),
            "putMessageEntireTimeMax": times.longest_ms,
            "putLatency99": f"{times.percentile(0.99):.2f}",
            "putLatency999": f"{times.percentile(0.999):.2f}",
            "getMessageEntireTimeMax": counters.longest_get_ms,
        }


def _span(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size_bytes: int) -> str:
    """A size as Apache's tools show it: 512 B, 1.9 KiB, 252.0 GiB."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    if size < 1024:
        return f"{size_bytes} B"
    unit = ""
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}"
