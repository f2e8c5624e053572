"""The servers of a run, each on its own machine: started, stopped, killed, frozen, and started again."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role
from orbitmq.cluster.brokers import make_broker
from orbitmq.cluster.layout import broker_settings, members, name_server_settings, settings_of_all
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime.seam import Clock, Runtime
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machines import PowerMachine
from tools.simulation.history import History
from tools.simulation.plan import (
    CLIENTS,
    GROUPS,
    NAME_SERVERS,
    OPERATOR,
    ROLLS_S,
    ROLLS_SLOT_MS,
    Mode,
    group_of,
)
from tools.simulation.shadow import Shadow

PORT, HA_PORT, NAME_SERVER_PORT = 10911, 10912, 9876
LEVELS, MORE_LEVELS = "1s 2s 5s 8s", "1s 2s 5s 8s 9s 11s"
SETTINGS: Mapping[str, str] = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": str(128 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 300),
    "mappedFileSizeTimerLog": str(64 * 1024),
    "messageDelayLevel": LEVELS,
    "flushIntervalCommitLog": "1000",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    # A producer may be cut off for a minute: its transactions must not be set aside before it is back.
    "transactionCheckMax": "100",
    "maxHashSlotNum": "256",
    "maxIndexNum": "400",
    "recallMessageEnable": "true",
}
# Seconds from a log file's last message to its deletion, and between cleanings; real brokers count hours.
RESERVED_S, CLEAN_S = 10.0, 1.0
# The allowed values of timerPrecisionMs.
SLOTS_MS = (100, 200, 500, 1000)
# A process that cannot start is started again, like under a supervisor.
START_AGAIN_S = 1.0
MOST_STARTS = 100
STOP_LIMIT_S = 30.0
LOOK_S = 0.05
MOST_CANCELS = 20
CLOSE_STEP_S = 5.0


@dataclass
class Server:
    """One server and its machine.

    Attributes:
        broker, name_server: the running server; ``None`` if it is of the other kind, or not running.
    """

    name: str
    machine: PowerMachine
    broker: Broker | None = None
    name_server: NameServer | None = None
    wanted: bool = True
    begun: asyncio.Task[None] | None = None

    @property
    def serves(self) -> bool:
        """Whether the server has started, and is neither ended nor frozen; true while it stops."""
        begun = self.begun
        if begun is None or not begun.done() or begun.cancelled() or begun.exception() is not None:
            return False
        return self.machine.process.running and (self.broker is None or bool(self.broker.running))

    @property
    def role(self) -> Role | None:
        """The role of a broker that serves; otherwise None."""
        return self.broker.services.role.role if self.broker is not None and self.serves else None


# The operator works from another machine.
SERVES_OPERATOR = {"protectedMode": "false"}


class Site:
    """All machines and servers of one run.

    Attributes:
        shadow: compares what brokers accept from each other's tables with stamps; ``None`` without a
            comparison.
    """

    def __init__(self, runtime: SimulatedRuntime, mode: Mode, history: History) -> None:
        self.shadow: Shadow | None = None
        self._runtime = runtime
        self._mode = mode
        self._history = history
        self.clock: Clock = runtime.clock
        names = (*NAME_SERVERS[: mode.name_servers], *mode.brokers, *CLIENTS, OPERATOR)
        self.machines = {
            name: PowerMachine(runtime.machine(f"10.0.0.{number}")) for number, name in enumerate(names, 1)
        }
        # How far each machine's wall clock is ahead while no fault has set it.
        self.ahead_ms = {
            name: machine.random.randint(0, mode.apart_ms) if mode.apart_ms else 0
            for name, machine in self.machines.items()
        }
        for name, machine in self.machines.items():
            machine.skew_ms = self.ahead_ms[name]
        self.names = {machine.host: name for name, machine in self.machines.items()}
        self.servers = {
            name: Server(name, self.machines[name]) for name in names if name not in (*CLIENTS, OPERATOR)
        }
        self._groups = {
            group: [self.servers[name] for name in (group, *mode.slaves(group))] for group in GROUPS
        }
        self._members = {member.name: member for member in members(len(GROUPS), mode.replicas)}

    @property
    def name_servers(self) -> str:
        """The name servers as "host:port;host:port"."""
        used = NAME_SERVERS[: self._mode.name_servers]
        return ";".join(f"{self.machines[name].host}:{NAME_SERVER_PORT}" for name in used)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that all brokers have in common."""
        more = dict(SETTINGS)
        more["flushDiskType"] = "SYNC_FLUSH" if self._mode.sync_flush else "ASYNC_FLUSH"
        if self._mode.quorum:
            more |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": str(self._mode.in_sync)}
        if self._mode.need:
            more[self._mode.need] = "true"
        if self._mode.strict_locks:
            more["lockInStrictMode"] = "true"
        if self._mode.rolls:
            slots = round(ROLLS_S * 1000 / ROLLS_SLOT_MS)
            more |= {"timerPrecisionMs": str(ROLLS_SLOT_MS), "timerRollWindowSlot": str(slots)}
        return settings_of_all(self._mode.replicas, more)

    def brokers(self, group: str) -> list[Server]:
        """The servers of a group, the master first."""
        return self._groups[group]

    # -- starting and stopping -------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Start a server, unless it runs; the machine retries until the start succeeds."""
        server = self.servers[name]
        if server.begun is not None:
            return
        server.wanted = True
        server.begun = server.machine.begin(self._start(server))

    async def _start(self, server: Server) -> None:
        runtime = server.machine.runtime
        for attempt in range(MOST_STARTS):
            made = self._made(server, runtime)
            try:
                await made.start()
            except StartError as error:
                self._history.note(server.name, f"does not start: {error}")
            except Exception as error:
                self._history.violate("nothing crashes", f"{server.name} does not start: {error!r}")
                raise
            else:
                if self._mode.expires and isinstance(made, Broker):
                    _keep_for_seconds(made)
                self._history.note(server.name, "serves" if not attempt else f"serves after {attempt} tries")
                return
            await runtime.clock.sleep(START_AGAIN_S)
        self._history.violate(
            "processes end clean", f"{server.name} does not start after {MOST_STARTS} tries"
        )

    def _made(self, server: Server, runtime: Runtime) -> Broker | NameServer:
        if server.name in NAME_SERVERS:
            config = NameServerConfig(bind_address=server.machine.host, listen_port=NAME_SERVER_PORT)
            config, _ = config.updated(name_server_settings(SETTINGS) | SERVES_OPERATOR)
            server.name_server = NameServer(runtime, config)
            return server.name_server
        more = [] if self.shadow is None else [self.shadow.extension(server.name)]
        server.broker = make_broker(runtime, self._broker_config(server), *more)
        return server.broker

    def _broker_config(self, server: Server) -> BrokerConfig:
        settings = broker_settings(
            self._members[server.name],
            cluster="DefaultCluster",
            port=PORT,
            ha_port=HA_PORT,
            root="/store",
            name_servers=self.name_servers,
            more=SERVES_OPERATOR | self.settings | (self._changed(server) if self._mode.changes else {}),
            host=server.machine.host,
        )
        config, warnings = BrokerConfig().updated(settings)
        if warnings:
            raise StartError("; ".join(warnings))
        return config

    def _changed(self, server: Server) -> dict[str, str]:
        """The changed settings of this start: at least as much is promised, and roll windows keep their
        length.
        """
        dice = server.machine.random
        more = {
            "transactionTimeOut": str(dice.choice((1000, 2000, 3000))),
            "mappedFileSizeTimerLog": str(dice.choice((16, 64)) * 1024),
            "maxIndexNum": str(dice.choice((200, 400, 800))),
            "messageDelayLevel": dice.choice((LEVELS, MORE_LEVELS)),
        }
        if not self._mode.rolls:
            # A roll window has at least 60 slots. With another length timers may be delivered twice after an
            # acting slave's work (docs/timers.md).
            more["timerPrecisionMs"] = str(dice.choice(SLOTS_MS))
        if not self._mode.sync_flush:
            more["flushDiskType"] = dice.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        if not self._mode.quorum:
            more["brokerRole"] = dice.choice(("SYNC_MASTER", "ASYNC_MASTER"))
            more["inSyncReplicas"] = dice.choice("12")
        if not self._mode.strict_locks:
            more["lockInStrictMode"] = dice.choice(("true", "false"))
        return more

    async def stop(self, name: str) -> None:
        """Stop a server cleanly (SIGTERM); returns after its process has ended."""
        server = self.servers[name]
        process, begun = server.machine.process, server.begun
        if begun is None or not server.wanted:
            return
        server.wanted = False
        ending = server.machine.begin(self._end(server))
        begin = self.clock.monotonic()
        while not ending.done() and not process.killed:
            await asyncio.sleep(LOOK_S)
            if not process.running:
                begin = self.clock.monotonic()
            if self.clock.monotonic() - begin > STOP_LIMIT_S:
                self._history.violate("processes end clean", f"{name} still stops after {STOP_LIMIT_S:g} s")
                break
        if process.killed:
            return
        if ending.done() and (error := ending.exception()) is not None:
            self._history.violate("processes end clean", f"{name} stops with {error!r}")
        elif in_use := server.machine.disk.in_use:
            self._history.violate("processes end clean", f"{name} has stopped and holds {', '.join(in_use)}")
        self._gone(server)
        server.machine.kill()

    async def _end(self, server: Server) -> None:
        begun = server.begun
        if begun is not None and not begun.done():
            begun.cancel()
            await asyncio.wait({begun})
        made = server.broker or server.name_server
        if made is not None:
            await made.stop()

    def kill(self, name: str) -> None:
        """End the process of a server or of clients at once."""
        self._gone(self.servers.get(name))
        self.machines[name].kill()

    def lose_power(self, name: str, keep: Keep) -> None:
        """Cut the power of a machine; ``keep`` selects the unsynced writes that survive."""
        self._gone(self.servers.get(name))
        self.machines[name].crash(keep)

    def _gone(self, server: Server | None) -> None:
        if server is not None:
            if server.broker is not None and server.broker.running:
                # The growth since the watch's last look.
                end = server.broker.services.store.max_commit_log_offset
                self._history.log_grew(group_of(server.name), end)
            server.wanted = False
            server.broker = server.name_server = server.begun = None

    # -- the network -----------------------------------------------------------------------------------

    def cut(self, one: list[str], other: list[str], *, one_way: bool = False) -> Callable[[], None]:
        """Let nothing pass between machines; returns the function that ends it."""
        hosts = [[self.machines[name].host for name in side] for side in (one, other)]
        return self._runtime.network.partition(hosts[0], hosts[1], one_way=one_way)

    def reset(self, name: str) -> None:
        """Reset all connections of a machine."""
        self._runtime.network.cut(self.machines[name].host)

    def slow_network(self, low_s: float, high_s: float) -> None:
        """Set the delay of every write."""
        self._runtime.network.set_delay(low_s, high_s)

    # -- the end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all tasks of the run, including those of killed processes."""
        for machine in self.machines.values():
            machine.kill()
            machine.bury()
        with warnings.catch_warnings():
            # A task that is cancelled before its first step does not await its coroutine.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for _ in range(MOST_CANCELS):
                # After one cancellation some tasks begin to close machines without power, and wait for them.
                tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
                for task in tasks:
                    task.cancel()
                if not tasks:
                    break
                await asyncio.wait(tasks, timeout=CLOSE_STEP_S)


def _keep_for_seconds(broker: Broker) -> None:
    """Let the log files of a broker that was just started be deleted after seconds, at any hour."""
    store = broker.services.store
    store.config = replace(
        store.config,
        file_reserved_ms=round(RESERVED_S * 1000),
        clean_interval_ms=round(CLEAN_S * 1000),
        disk_max_used_ratio=0.0,
    )
