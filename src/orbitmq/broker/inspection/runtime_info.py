"""The state of a running broker (AdminBrokerProcessor.prepareRuntimeInfo, HAService.getRuntimeInfo)."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.rates import Rates
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.wire.bodies import HAClientRuntimeInfo, HARuntimeInfo
from orbitmq.wire.command import PROTOCOL_VERSION

VERSION_TEXT = "V5_3_3"


class RuntimeInfo:
    """Says how a broker does, as far as a broker without thread pools has what RocketMQ shows."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        store: MessageStore,
        stats: Stats,
        rates: Rates,
        counters: Counters,
        long_polling: LongPolling,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._store = store
        self._stats = stats
        self._rates = rates
        self._counters = counters
        self._long_polling = long_polling

    def ha_status(self) -> HARuntimeInfo:
        """The state of replication: this broker has no replicas and follows no master."""
        end = self._store.max_commit_log_offset
        if self._config.is_slave:
            return HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(max_offset=end))
        return HARuntimeInfo(master=True, master_commit_log_max_offset=end)

    def table(self) -> dict[str, str]:
        """The state by RocketMQ's names."""
        store, counters = self._store, self._counters
        now = self._runtime.clock.now_ms()
        folder = store.config.commit_log_path
        ratio = round(self._runtime.files.disk_used_ratio(folder), 4)
        total, free = self._runtime.files.disk_bytes(folder)
        taken = store.max_commit_log_offset - counters.started_offset
        state: dict[str, int | float | str] = {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": PROTOCOL_VERSION,
            "brokerActive": "true",
            "bootTimestamp": counters.started_ms,
            "runtime": _span((now - counters.started_ms) // 1000),
            "putTps": self._rates.text(Rates.PUT),
            "getTransferredTps": self._rates.text(Rates.GET),
            "msgPutTotalYesterdayMorning": self._stats.yesterday_morning[0],
            "msgPutTotalTodayMorning": self._stats.this_morning[0],
            "msgPutTotalTodayNow": counters.messages_in,
            "msgGetTotalYesterdayMorning": self._stats.yesterday_morning[1],
            "msgGetTotalTodayMorning": self._stats.this_morning[1],
            "msgGetTotalTodayNow": counters.messages_out,
            "earliestMessageTimeStamp": store.earliest_store_time,
            "commitLogMinOffset": store.min_commit_log_offset,
            "commitLogMaxOffset": store.max_commit_log_offset,
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{folder}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
            "putMessageTimesTotal": counters.messages_in,
            "putMessageSizeTotal": taken,
            "putMessageAverageSize": taken / max(1, counters.messages_in),
            "remainHowManyDataToFlush": _size(store.max_commit_log_offset - store.flushed_offset),
            "remainTransientStoreBufferNumbs": 0,
            "dispatchMaxBuffer": 0,
            "dispatchBehindBytes": 0,
            "pageCacheLockTimeMills": 0,
            "startAcceptSendRequestTimeStamp": 0,
            "waitingPulls": len(self._long_polling),
        }
        # mqadmin reads these without asking whether they are there; nothing queues in front of our handlers.
        for name in ("send", "pull", "litePull", "query", "ack"):
            state[f"{name}ThreadPoolQueueSize"] = 0
            state[f"{name}ThreadPoolQueueCapacity"] = 0
            state[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        state |= {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 0}
        state |= {"timerReadBehind": 0, "timerOffsetBehind": 0, "timerCongestNum": 0}
        state |= {"timerEnqueueTps": 0.0, "timerDequeueTps": 0.0}
        return {key: str(value) for key, value in state.items()}


def _span(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size_bytes: int) -> str:
    """As Apache's tools show sizes: 512 B, 1.9 KiB, 252.0 GiB."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    if size < 1024:
        return f"{size_bytes} B"
    unit = ""
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}"
