"""The description of an mqadmin command: its name, its flags, the function that yields its output."""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.cli.failures import UsageError

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.cluster_client import ClusterClient
    from orbitmq.admin.model import BrokerInfo
    from orbitmq.cli.where import Servers

Options = argparse.Namespace
_LOCAL = re.compile(r"(\d{4})-(\d\d)-(\d\d)#(\d\d):(\d\d):(\d\d):(\d{3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, such as ``-t``, ``--topic``.

    Attributes:
        takes: whether the flag has a value.
    """

    letter: str
    name: str
    help: str
    required: bool = False
    takes: bool = True


TOPIC = Flag("t", "topic", "name of the topic", required=True)
INTERVAL = Flag("i", "interval", "again after so many seconds, until Ctrl-C")


@dataclass(frozen=True, slots=True)
class Tool:
    """The connection of a command to the cluster.

    Attributes:
        admin: for operations that have a method.
        cluster: the same connections, for requests whose complete answer is printed.
    """

    admin: Admin
    cluster: ClusterClient
    servers: Servers

    async def brokers(self, cluster: str) -> list[BrokerInfo]:
        """All brokers of a cluster, masters first.

        Raises:
            UsageError: no name server knows the cluster.
        """
        found = [one for one in await self.cluster.brokers() if one.cluster == cluster]
        if not found:
            raise UsageError(f"-c {cluster}: no cluster of this name has a broker; see mqadmin clusterList")
        return sorted(found, key=lambda one: (not one.is_master, one.name, one.broker_id))

    async def addresses(self, options: Options, *, slaves: bool = False) -> list[str]:
        """The brokers that a command asks: the broker of ``-b``, else the masters of the cluster of
        ``-c``.
        """
        if options.b is not None:
            return [options.b]
        return [one.address for one in await self.brokers(options.c) if slaves or one.is_master]

    async def name_servers(self) -> list[str]:
        return await self.cluster.name_servers.known(self.cluster.timeout_ms)


# A command yields each line at once, so that finished work is seen even if a later step fails.
Work = Callable[[Tool, Options], AsyncIterator[str]]


@dataclass(frozen=True, slots=True)
class Offer:
    """An available command.

    Attributes:
        text: a short description.
        places: whether the command takes either ``-b`` or ``-c``.
        is_alias: whether this is a second name of a command, which is not listed.
    """

    text: str
    flags: Sequence[Flag]
    work: Work
    places: bool
    is_alias: bool = False


class Offers(dict[str, Offer]):
    """Commands by their names; ``offers(name, ...)`` adds the function that it decorates."""

    def __call__(
        self, name: str, text: str, *flags: Flag, places: bool = False, alias: str = ""
    ) -> Callable[[Work], Work]:
        def add(work: Work) -> Work:
            self[name] = Offer(text, flags, work, places)
            if alias:
                self[alias] = Offer(text, flags, work, places, is_alias=True)
            return work

        return add


def boolean(text: str | None, default: bool) -> bool:
    """Parse true or false like Java's ``Boolean.parseBoolean``, but refuse other words.

    Raises:
        UsageError: the text is neither true nor false.
    """
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{text}: expected true or false")
    return text.lower() == "true"


def number(letter: str, text: str | None, default: int) -> int:
    """Parse a whole number.

    Raises:
        UsageError: the text is no whole number; the error names the flag.
    """
    from orbitmq.message.numbers import whole_number

    found = default if text is None else whole_number(text)
    if found is None:
        raise UsageError(f"-{letter} {text}: expected a whole number")
    return found


def moment(letter: str, text: str) -> int:
    """Parse a time; returns milliseconds. Without a zone it is in the zone of this machine, as in mqadmin.

    Raises:
        UsageError: the text is no time; the error names the flag.
    """
    from orbitmq.durations import instant
    from orbitmq.message.numbers import whole_number
    from orbitmq.runtime.system import system_runtime

    clock = system_runtime().clock
    when = clock.now_ms() if text == "now" else whole_number(text)
    local = _LOCAL.fullmatch(text)
    try:
        if local is not None:
            year, month, day, hour, minute, second, ms = map(int, local.groups())
            shown = clock.local_time(0).replace(year, month, day, hour, minute, second, ms * 1000)
            when = clock.epoch_ms(shown)
        if when is None:
            raise ValueError(text)
        instant(when)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"-{letter} {text}: expected now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
        ) from error
    return when


async def again(interval: str | None, look: Callable[[], AsyncIterator[str]]) -> AsyncIterator[str]:
    """The lines of ``look``; with ``-i`` repeated at this interval.

    Raises:
        UsageError: the interval is no number of seconds.
    """
    from orbitmq.runtime.system import system_runtime

    seconds = number("i", interval, 0)
    if interval is not None and not 1 <= seconds <= 86_400:
        raise UsageError(f"-i {interval}: expected 1 to 86400 seconds")
    while True:
        async for line in look():
            yield line
        if not seconds:
            return
        await system_runtime().clock.sleep(seconds)
