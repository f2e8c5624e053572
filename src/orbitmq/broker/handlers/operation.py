"""Running a broker: its settings and its state (AdminBrokerProcessor)."""

from __future__ import annotations

import asyncio
import logging

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.rates import Rates
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import properties_text
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import PROTOCOL_VERSION, Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import GetBrokerConfigResponse

log = logging.getLogger(__name__)

VERSION_TEXT = "V5_3_3"


class OperationHandlers(Family):
    """Settings and state."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        events: Events,
        topics: TopicConfigs,
        store: MessageStore,
        stats: Stats,
        rates: Rates,
        counters: Counters,
        long_polling: LongPolling,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._events = events
        self._topics = topics
        self._store = store
        self._stats = stats
        self._rates = rates
        self._counters = counters
        self._long_polling = long_polling
        self._saving = asyncio.Lock()

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
        }

    async def update_config(self, connection: ServerConnection, command: Command) -> Command:
        """Change settings that may change while the broker runs; all of the request or none."""
        try:
            changes = properties_text.parse(command.body.decode())
            self._config.apply_live(changes)
        except ConfigError as error:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"Can not update config: {error}") from error
        except UnicodeDecodeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8: {error}") from error
        log.info("settings changed by %s: %s", connection.remote_address, ", ".join(sorted(changes)))
        self._events.publish(SettingsChanged(frozenset(changes)))
        if self._config.broker_config_path:
            await self._save(self._config.broker_config_path, changes)
        return command.reply()

    async def _save(self, path: str, changes: dict[str, str]) -> None:
        """Write the changes into the file that the settings came from."""
        async with self._saving:
            try:
                await self._runtime.threads.run(self._amend, path, changes)
            except (OSError, ValueError) as error:
                # As RocketMQ: they are in force, and a file that is read-only here may be on purpose.
                log.warning("changed settings are lost with the next start, %s: %s", path, error)

    def _amend(self, path: str, changes: dict[str, str]) -> None:
        files = self._runtime.files
        text = files.read_bytes(path).decode() if files.exists(path) else ""
        files.write_atomic(path, properties_text.amended(text, changes).encode())

    def get_config(self, _connection: ServerConnection, command: Command) -> Answer:
        """All settings as Java properties."""
        text = properties_text.render(self._config.to_properties())
        version = self._topics.version.encode().decode()
        return GetBrokerConfigResponse(version=version).reply_to(command, body=text.encode())

    def clean(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete expired files now; the two codes for it do the same here."""
        log.info("expired files are deleted for %s", connection.remote_address)
        self._store.clean()
        return command.reply()

    def clean_unused_topics(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete queues on disk whose topic is not in the table."""
        dropped = self._store.drop_unknown_topics()
        if dropped:
            log.info("unused topics deleted for %s: %s", connection.remote_address, ", ".join(dropped))
        return command.reply()

    def runtime_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """State by RocketMQ's names, as far as a broker without thread pools has it."""
        return command.reply(body=KVTable(table=self._state()).encode())

    def _state(self) -> dict[str, str]:
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
