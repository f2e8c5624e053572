"""``orbitmq console``: pages about a cluster, for a browser."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.entering import Entering
from orbitmq.cli.failures import UsageError
from orbitmq.cli.user import Generate, SecretFile, secret_of
from orbitmq.cli.view import Line, View
from orbitmq.cli.where import Clusters
from orbitmq.runtime.imports import is_missing

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

# Connections at the same time; further ones get 503.
MOST_CONNECTIONS = 500

app = make_app(
    "console",
    "Serve pages about a cluster to browsers.\n\n"
    "It prints a link that opens them on this machine. With users it asks for a name and a password instead, "
    "and may listen elsewhere, too.",
    """
orbitmq console
orbitmq console --context prod --write
orbitmq console --context prod --context staging
orbitmq console --port 9090
orbitmq console password anna operator --generate
orbitmq console --users users.txt --host 10.0.0.5 --cert mq.pem --key mq.key
""",
)


@app.default
@command
def console(
    clusters: Clusters,
    /,
    *,
    host: Annotated[str, Parameter()] = "127.0.0.1",
    port: Annotated[int, Parameter()] = 8082,
    write: Flag = False,
    entering: Entering = Entering(),
) -> Views:
    """Serve the pages until Ctrl-C. The printed link works once, within 10 minutes.

    Args:
        host: Address to listen on. Any but a loopback address needs users and https.
        port: Port to listen on.
        write: Allow changes in the session of the link. By default the pages only read.
    """
    entering.check(host, port)
    if write and not entering.by_link:
        raise UsageError("--write is for the link; with users their roles say who may change what")
    if entering.login and len(clusters.servers) > 1:
        raise UsageError("--login lets the users of one cluster in: give one --context, or --users")
    return _serve(clusters, host, port, entering, write=write)


async def _serve(clusters: Clusters, host: str, port: int, entering: Entering, *, write: bool) -> Views:
    async with opened(clusters, host, port, entering, write=write) as (line, serve):
        yield line
        await serve()


@asynccontextmanager
async def opened(
    clusters: Clusters, host: str, port: int, entering: Entering, *, write: bool = False
) -> AsyncGenerator[tuple[Line, Callable[[], Coroutine[Any, Any, None]]], None]:
    """A listening console: the line with its address, and the coroutine function that serves until a signal.

    Args:
        port: the port; 0 for a free one.

    Raises:
        UsageError: the libraries are missing, or the certificate or key is unusable.
        StartError: the port is taken.
    """
    try:
        from orbitmq.console.app import Console
        from orbitmq.console.connections import LimitedServer
    except ImportError as error:
        if not is_missing(error):
            raise
        raise UsageError(f"the console needs: pip install 'orbitmq[console]' ({error})") from error
    from orbitmq.runtime.listening import listening_socket
    from orbitmq.runtime.system import system_runtime

    options = {one.context or one.addresses: one.options for one in clusters.servers}
    names, used = list(options), system_runtime()
    clock = used.clock
    # The port listens before the link is printed, so that the link works at once.
    with listening_socket(host, port) as listener:
        port = listener.getsockname()[1]
        entrance = entering.entrance(host, port, options[names[0]], used.threads, clock.monotonic)
        made = Console(options, clock.monotonic, clock.now_ms, entrance=entrance, write=write)
        server = LimitedServer(_server_config(made.app, entering))
        # These objects live as long as the console. Frozen, they make a full garbage collection, which
        # happens every few pages with thousands of groups, take 5 ms instead of 35 ms.
        gc.collect()
        gc.freeze()
        link, how = entering.address(host, port), "log in there"
        if entering.by_link:
            link, how = f"{link}/?token={made.sessions.token}", "good once, for 10 minutes"
        try:
            text = f"console of {', '.join(names)}: {link} ({how})"
            yield (
                Line({"clusters": names, "link": link}, text),
                lambda: server.serve(sockets=[listener]),
            )
        finally:
            await made.close()


def _server_config(pages: ASGIApp, entering: Entering) -> uvicorn.Config:
    """The configuration of the web server; it trusts no header that a proxy would set.

    Raises:
        UsageError: the certificate or key is unusable.
    """
    import uvicorn

    from orbitmq.console.connections import LimitedConnection, OneASecond

    config = uvicorn.Config(
        pages,
        interface="asgi3",
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=5,
        ssl_certfile=entering.cert,
        ssl_keyfile=entering.key,
    )
    try:
        config.load()
    except OSError as error:  # TLS errors included
        raise UsageError(f"--cert {entering.cert}, --key {entering.key}: {error}") from error
    logging.getLogger("uvicorn.error").addFilter(OneASecond())
    return config


@app.command
@command
def password(
    name: Annotated[str, Parameter(help="Name of the user.")],
    role: Annotated[str, Parameter(help="Role: watcher (sees no bodies), viewer, operator or admin.")],
    /,
    *,
    generate: Generate = False,
    secret_file: SecretFile = None,
) -> View:
    """Print the line of a user for the file of --users."""
    from orbitmq.console.users_file import line_of

    secret, shown = secret_of(generate, secret_file)
    if secret is None:
        raise UsageError("give --generate or --secret-file: a user needs a password")
    line = line_of(name, role, secret)
    notes = [f"password of {name}, shown once: {secret}"] if shown else []
    return View({"name": name, "role": role, "line": line, **shown}, lines=[line], notes=notes)
