"""One broker: takes its port, puts its parts together, starts and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Self

from orbitmq.broker.assembly import assemble
from orbitmq.broker.component import C, ComponentLifecycle
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.doors import Doors
from orbitmq.broker.extension import Extension, HandOver
from orbitmq.broker.metadata.table_files import TableError
from orbitmq.broker.name_server_watch import first_name_servers
from orbitmq.broker.parts import Services
from orbitmq.broker.role import Role, RoleTaken
from orbitmq.errors import StartError
from orbitmq.runtime.seam import Runtime
from orbitmq.store import StoreError
from orbitmq.wire.addresses import is_of_one_machine, joined

# How long the start waits for DNS to resolve ``brokerIP1``; then it fails.
RESOLVE_SECONDS = 10.0

log = logging.getLogger(__name__)


class Broker:
    """A broker in this process. Use it as an async context manager, or call :meth:`start` and :meth:`stop`.

    A broker that was stopped is not started again; make another one. When it has stopped, messages that were
    acknowledged and offsets that were committed are on disk.

    Args:
        extensions: add features to this broker, see :mod:`orbitmq.broker.extension`.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, extensions: Sequence[Extension] = ()) -> None:
        self.runtime = runtime
        self.config = config
        self._extensions = tuple(extensions)
        self._hand_overs: Sequence[HandOver] = ()
        self.port = config.listen_port
        self.doors = Doors(runtime, config)
        self._services: Services | None = None
        self._lifecycle = ComponentLifecycle([])

    @property
    def services(self) -> Services:
        """The parts of a broker that was started.

        Raises:
            RuntimeError: the broker was not started.
        """
        if self._services is None:
            raise RuntimeError("the broker is not started")
        return self._services

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the running components."""
        return self._lifecycle.running

    def part(self, kind: type[C]) -> C:
        """The broker's component of this class, also of an extension: for embedding programs and for tests.

        Raises:
            LookupError: the broker has no such component, or is not started.
        """
        return self._lifecycle.find(kind)

    @property
    def address(self) -> str:
        """This broker's address for name servers and clients, host:port."""
        return joined(self.config.broker_ip1, self.port)

    async def start(self) -> None:
        """Listen, recover the store, read the tables, register. When it returns, the broker serves.

        Until then requests are answered SERVICE_NOT_AVAILABLE. A start that is cancelled releases everything
        it has taken.

        Raises:
            StartError: the port is in use, the store's folder is locked by another broker or cannot be
                used, or a table of ``config`` and its backup are damaged.
        """
        self.doors.stopping = False
        try:
            # The address is part of every record, so the port is taken before the store starts.
            self.port = await self.doors.listen()
            await first_name_servers(self.runtime, self.config)
            assembly = assemble(
                self.runtime,
                self.config,
                self.doors,
                (await self._own_ip(), self.port),
                self.change_role,
                self._extensions,
            )
            self._services = assembly.services
            self._lifecycle = ComponentLifecycle(assembly.components)
            await self._lifecycle.start(assembly.services.role.role)
            assembly.services.store.count_crash(False)
            self._hand_overs = assembly.hand_overs
        except (StoreError, TableError) as error:
            await self.stop()
            raise StartError(str(error)) from error
        except OSError as error:
            await self.stop()
            path = self.config.store_path_root_dir
            inside = f"{error.filename}: " if error.filename not in (None, path) else ""
            why = error.strerror or error
            raise StartError(f"cannot use storePathRootDir={path}: {inside}{why}") from error
        except BaseException:
            await self.stop()
            raise
        log.info("broker %s serves at %s", self.config.broker_name, self.address)

    async def _own_ip(self) -> str:
        """The IP address of ``brokerIP1``: records have room for an address, not for a host name."""
        name = self.config.broker_ip1
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                address = await self.runtime.network.resolve(name)
        except OSError as error:
            raise StartError(
                f"brokerIP1={name}: no address is known for this name ({error.strerror or error}); "
                "give an IP address, or a name that this machine and its clients know"
            ) from error
        if not is_of_one_machine(address):
            raise StartError(
                f"brokerIP1={name} is {address}: nobody can connect to that address; give one of this machine"
            )
        return address

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def change_role(self, role: Role) -> None:
        """Take another role: parts that do not work in that role stop, parts that do start.

        Raises:
            RoleError: the present role does not allow it.
        """
        services = self.services
        changed = services.role.move(role, self.runtime.clock.now_ms())
        if changed is not None:
            why = ": it stops" if self.doors.stopping else ""
            before, after = changed.before.value, changed.after.value
            log.warning("broker %s: %s becomes %s%s", self.address, before, after, why)
            services.events.publish(changed)
            await self._lifecycle.change_role(role)
            services.events.publish(RoleTaken())

    async def stop(self) -> None:
        """Hand over, leave the name servers, refuse requests, answer waiting requests, close, save."""
        self.doors.stopping = True
        hand_overs, self._hand_overs = self._hand_overs, ()
        for hand_over in hand_overs:
            try:
                await hand_over()
            except Exception:
                log.exception("broker %s stops without having handed over", self.address)
        await self._lifecycle.stop()
        await self.doors.close()
        if self._services is not None:
            self._services = None
            log.info("broker %s stopped", self.config.broker_name)
