"""``orbitmq console``: pages about a cluster, for a browser."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.view import Line
from orbitmq.cli.where import Servers

LOOPBACK = ("127.0.0.1", "::1", "localhost")

app = make_app(
    "console",
    "Serve pages about a cluster to a browser on this machine.",
    """
orbitmq console
orbitmq console --context prod --write
orbitmq console --port 9090
""",
)


@app.default
@command
def console(
    servers: Servers,
    /,
    *,
    host: Annotated[str, Parameter()] = "127.0.0.1",
    port: Annotated[int, Parameter()] = 8082,
    write: Flag = False,
) -> Views:
    """Serve the pages until Ctrl-C. The link that is printed is good once, for 10 minutes.

    Args:
        host: Address to listen on; only of this machine, as the console has no users yet.
        port: Port to listen on.
        write: Allow changes. By default the pages only read.
    """
    if host not in LOOPBACK:
        raise UsageError(f"--host {host}: expected 127.0.0.1, ::1 or localhost: the console has no users yet")
    if not 1 <= port <= 65_535:
        raise UsageError(f"--port {port}: expected 1 to 65535")
    return _serve(servers, host, port, write=write)


async def _serve(servers: Servers, host: str, port: int, *, write: bool) -> Views:
    try:
        import uvicorn

        from orbitmq.console.app import Console
    except ImportError as error:
        raise UsageError(f"the console needs: pip install 'orbitmq[console]' ({error})") from error
    from orbitmq.runtime.system import system_runtime

    name = servers.context or servers.addresses
    shown = f"[{host}]" if ":" in host else host
    hosts = frozenset(f"{one}:{port}" for one in ("127.0.0.1", "[::1]", "localhost"))
    clock = system_runtime().clock
    made = Console(servers.options, clock.monotonic, clock.now_ms, name=name, hosts=hosts, write=write)
    try:
        link = f"http://{shown}:{port}/?token={made.sessions.token}"
        text = f"console of {name}: {link} (good once, for 10 minutes)"
        yield Line({"cluster": name, "link": link}, text)
        # It trusts no header that a proxy would set.
        config = uvicorn.Config(
            made.app,
            host=host,
            port=port,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        await uvicorn.Server(config).serve()
    finally:
        await made.close()
