"""``orbitmq nameserver`` and ``orbitmq broker``: one server in this process, until SIGTERM or SIGINT.

The flags are those of RocketMQ's ``mqnamesrv`` and ``mqbroker``. argparse parses them: a server has to be
ready half a second after its start, and a richer parser would need a quarter of that time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from orbitmq import _streams
from orbitmq.cli import java_options
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageError, report, text_of
from orbitmq.cli.values import pairs
from orbitmq.errors import StartError
from orbitmq.message.numbers import whole_number

if TYPE_CHECKING:
    from orbitmq.runtime.log_output import Output

NAME_SERVERS = "NAMESRV_ADDR"
# A stopping server hands over and flushes. After this many seconds the process ends anyway.
STOP_LIMIT_S = 15.0
# Descriptors reserved for the store: it has up to 256 queues open, and the log.
KEPT_FILES = 512
# Loggers whose INFO lines are printed: the end of a failure is as important as its begin, which is a warning.
EVENTS = (
    "orbitmq.nameserver",
    "orbitmq.broker.registration",
    "orbitmq.monitoring",
    "orbitmq.broker.handlers.operation",
    "orbitmq.replication.link",
    "orbitmq.store.writable",
    "orbitmq.tls",
)

NAME_SERVER_EXAMPLES = """\
examples:
  orbitmq nameserver                       serve on port 9876
  orbitmq nameserver -c namesrv.conf       with RocketMQ's configuration file
  orbitmq nameserver --port 9877
"""
BROKER_EXAMPLES = """\
examples:
  orbitmq broker -n 127.0.0.1:9876         data below ~/store, port 10911
  orbitmq broker -c broker.conf -n 'host-a:9876;host-b:9876'
  orbitmq broker -c broker.conf --set flushDiskType=ASYNC_FLUSH
  orbitmq broker -c broker.conf -p         print every setting and exit
  orbitmq broker list                      running brokers; list --help has more
  orbitmq broker drain broker-a            empty one before it is stopped
"""


class Server(Protocol):
    """The methods that both kinds of servers have."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def port(self) -> int: ...


class LogSettings(Protocol):
    """The log settings that both kinds of servers have."""

    @property
    def log_format(self) -> str: ...

    @property
    def log_file(self) -> str: ...

    @property
    def log_file_max_bytes(self) -> int: ...

    @property
    def log_file_backups(self) -> int: ...


def main(command: str, arguments: Sequence[str]) -> int:
    """Run ``command`` (``nameserver`` or ``broker``) and return the exit code."""
    try:
        options = _parser(command).parse_args(arguments)
        return _name_server(options) if command == "nameserver" else _broker(options)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else EXIT_USAGE
    except (Exception, KeyboardInterrupt) as error:  # no error escapes: the user sees one line
        return report(command, error)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, like all commands."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")


def _parser(command: str) -> argparse.ArgumentParser:
    broker = command == "broker"
    parser = _Parser(
        prog=f"orbitmq {command}",
        description="Run a broker." if broker else "Run a name server.",
        epilog=BROKER_EXAMPLES if broker else NAME_SERVER_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    file = "Read settings from FILE, in RocketMQ's format."
    add("-c", "--configFile", "--config", dest="config", metavar="FILE", help=file)
    # The name server accepts these addresses like mqnamesrv, and ignores them.
    servers = f"Addresses of the name servers. Default: those of the file, else ${NAME_SERVERS}."
    names = ("-n", "--namesrvAddr", "--name-servers")
    shown = servers if broker else argparse.SUPPRESS
    add(*names, dest="name_servers", metavar="HOST:PORT;...", help=shown)
    printing = "Print all settings and exit; with a number: listen on that port."
    names = ("-p", "--printConfigItem", "--print-config")
    add(*names, dest="print_config", nargs="?", const=True, metavar="PORT", help=printing)
    if broker:
        important = "Print all settings and exit."
        add("-m", "--printImportantConfig", dest="print_config", action="store_true", help=important)
    port = "Listen on PORT (listenPort); 0 takes a free one."
    add("--port", dest="port", metavar="PORT", help=port)
    setting = "Override one setting. May be given more than once."
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=setting)
    return parser


def _name_server(options: argparse.Namespace) -> int:
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.wire.addresses import joined

    text, path = _read(options.config)
    overrides = java_options.with_tls(text, _overrides(options))
    try:
        config, warnings = NameServerConfig.load(text, overrides, path=path)
    except ValueError as error:
        raise _wrong(error, path, overrides) from error
    if options.print_config is True:
        return _print_settings(config.to_properties())
    _warn(warnings)

    def make() -> Server:
        from orbitmq.nameserver.server import NameServer
        from orbitmq.runtime.system import system_runtime

        return NameServer(system_runtime(), replace(config, max_connections=_fit(config.max_connections)))

    def line(server: Server) -> str:
        address = joined(config.bind_address, server.port)
        return f"name server serves {address}{_metrics(server, config.metrics_host)}"

    return _serve(make, line, _logs(config))


def _broker(options: argparse.Namespace) -> int:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.settings import properties_text
    from orbitmq.wire.addresses import joined, shown

    text, path = _read(options.config)
    overrides = java_options.with_tls(text, _overrides(options))
    given = properties_text.parse(text)
    servers_from = "settings"
    if options.name_servers:
        overrides["namesrvAddr"], servers_from = options.name_servers, "-n"
    elif not (given.get("namesrvAddr") or overrides.get("namesrvAddr")) and os.environ.get(NAME_SERVERS):
        overrides["namesrvAddr"], servers_from = os.environ[NAME_SERVERS], f"${NAME_SERVERS}"
    try:
        config, warnings = BrokerConfig.load(text, overrides, path=path)
    except ValueError as error:
        raise _wrong(error, path, overrides, servers_from) from error
    if "brokerIP1" not in given and "brokerIP1" not in overrides:
        config.broker_ip1 = own_address(config.name_servers)
    if options.print_config is True:
        return _print_settings(config.to_properties())
    if not config.name_server_source:
        warnings.append(
            f"no name server is known (-n, namesrvAddr or ${NAME_SERVERS}): clients cannot find it"
        )
    _warn(warnings)

    def make() -> Server:
        from orbitmq import _speed
        from orbitmq.cluster.brokers import make_broker
        from orbitmq.runtime.system import system_runtime

        if _speed.of_package() == "uncompiled":
            _warn(["the modules on the path of every message run uncompiled, and slower"])
        config.max_connections = _fit(config.max_connections)
        return make_broker(system_runtime(), config)

    def line(server: Server) -> str:
        address = joined(config.broker_ip1, server.port)
        return (
            f"broker {config.broker_name} (id {config.broker_id}) serves {address}, "
            f"store {config.store_path_root_dir}, {config.flush_disk_type}, "
            f"name servers {shown(config.name_server_source) or 'none'}"
            f"{_metrics(server, config.metrics_host)}"
        )

    return _serve(make, line, _logs(config))


def _logs(config: LogSettings) -> Output:
    from orbitmq.runtime.log_output import Output

    return Output(config.log_format, config.log_file, config.log_file_max_bytes, config.log_file_backups)


def _metrics(server: Server, host: str) -> str:
    """The metrics address of the server, for its line at the start; empty if it serves no metrics."""
    from orbitmq.broker.broker import Broker
    from orbitmq.broker.monitoring import BrokerMonitoring
    from orbitmq.nameserver.server import NameServer
    from orbitmq.wire.addresses import joined

    port = 0
    if isinstance(server, Broker):
        port = server.part(BrokerMonitoring).port
    elif isinstance(server, NameServer):
        port = server.monitoring.port
    return f", metrics http://{joined(host, port)}/metrics" if port else ""


def own_address(name_servers: Sequence[str]) -> str:
    """The address by which other machines reach this one: the source address of a route to the first name
    server.

    If the name server is on this machine, that address is 127.0.0.1, which other machines cannot use. In this
    case, and without a name server, the result is the source address of the default route; only a machine
    without a network gets 127.0.0.1.
    """
    from orbitmq.wire.addresses import split

    first = [split(address)[0] for address in name_servers[:1]]
    # TEST-NET-1 is only looked up in the routing table; no packet is sent
    for target in (*first, "192.0.2.1"):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))
            except OSError:
                continue
            address = str(probe.getsockname()[0])
        if not address.startswith("127.") and address != "::1":
            return address
    return "127.0.0.1"


def _overrides(options: argparse.Namespace) -> dict[str, str]:
    found = pairs("--set", options.settings, "KEY=VALUE")
    if options.port is not None:
        found["listenPort"] = options.port
    elif isinstance(options.print_config, str):
        if whole_number(options.print_config, 65535) is None:
            raise UsageError(f"-p {options.print_config}: expected a port number, or nothing")
        found["listenPort"] = options.print_config
    return found


def _wrong(
    error: ValueError, path: str, overrides: Mapping[str, str], servers_from: str = "settings"
) -> UsageError:
    """The error for a wrong setting in the configuration file at ``path``, or on the command line.

    Args:
        servers_from: the source of ``namesrvAddr``, if it is not the file.
    """
    from orbitmq.settings.typed import ConfigError

    place = path or "settings"
    if isinstance(error, ConfigError) and error.key in overrides:
        place = servers_from if error.key == "namesrvAddr" else "settings"
    return UsageError(f"{place}: {error}")


def _read(path: str | None) -> tuple[str, str]:
    return ("", "") if path is None else (text_of(path), os.path.abspath(path))


def _print_settings(settings: Mapping[str, str]) -> int:
    for key, value in sorted(settings.items()):
        print(f"{key}={value}")
    return EXIT_OK


def _warn(warnings: Sequence[str]) -> None:
    # A server has to start even if its log is on a full disk.
    with contextlib.suppress(OSError):
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)


def _say(line: str) -> None:
    """Print a line; ignore an error of the write, such as a full disk."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _serve(make: Callable[[], Server], line: Callable[[Server], str], logs: Output) -> int:
    from orbitmq.runtime.system import require_linux

    require_linux()
    try:
        writer = logs.open()
    except OSError as error:
        raise StartError(f"cannot open logFile={logs.path}: {error.strerror or error}") from error
    logging.basicConfig(level=logging.WARNING, handlers=[writer])
    for name in EVENTS:
        logging.getLogger(name).setLevel(logging.INFO)
    _allow_open_files()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        _warn(["uvloop is not installed (pip install 'orbitmq[server]'): the server is slower"])
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_until_stopped(make, line))
    finally:
        writer.close()
        _streams.leave_unwritten()


def _allow_open_files() -> None:
    """Raise the limit of open files as far as the system allows: a shell's default of 1024 is too low for a
    server.
    """
    import resource

    most = _most_open_files()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _most_open_files() -> int:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def connections_of(most: int, open_files: int) -> int:
    """The number of connections, ``most`` at most, that leaves descriptors for the store, replicas and the
    server's own requests: a quarter of all, 512 at least, but never more than half.
    """
    kept = min(max(open_files // 4, KEPT_FILES), open_files // 2)
    return max(1, min(most, open_files - kept))


def _fit(max_connections: int) -> int:
    """The number of ``maxConnections`` that the limit of open files allows; warns if it is lower."""
    files = _most_open_files()
    fit = connections_of(max_connections, files)
    if fit != max_connections:
        _warn([
            f"maxConnections is {fit} instead of {max_connections}: the system allows {files} open files "
            "(ulimit -Hn, or LimitNOFILE= of systemd), and some are kept for the store"
        ])  # fmt: skip
    return fit


async def _until_stopped(make: Callable[[], Server], line: Callable[[Server], str]) -> int:
    from orbitmq.runtime.service_manager import ServiceManager

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    manager = ServiceManager(os.environ, os.getpid(), lambda sentence: _warn([sentence]))
    server = make()
    manager.starting()
    starting, stopping = asyncio.ensure_future(server.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # A start with a long recovery can be cancelled without loss.
        manager.stopping()
        starting.cancel()
        return await _bounded(asyncio.wait({starting}))
    await starting
    # All present objects live as long as the process: the garbage collector need not visit them.
    gc.collect()
    gc.freeze()
    serves = line(server)
    _say(serves)
    manager.ready(serves)
    await stopping
    manager.stopping()
    return await _bounded(server.stop())


async def _bounded(stopping: Awaitable[Any]) -> int:
    try:
        await asyncio.wait_for(stopping, STOP_LIMIT_S)
    except TimeoutError:
        print(f"stop took more than {STOP_LIMIT_S:.0f} s and was given up", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK
