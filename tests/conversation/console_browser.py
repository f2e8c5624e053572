"""A browser at a console whose cluster is in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from orbitmq import Credentials, Message
from orbitmq.console.app import Console
from orbitmq.console.entrance import Entrance
from orbitmq.testing import World

HOST = "127.0.0.1:8082"
ORIGIN = {"Origin": f"http://{HOST}"}
TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


class Browser:
    """Requests pages from a console, and submits their forms."""

    def __init__(self, console: Console, http: httpx.AsyncClient) -> None:
        self.console, self.http = console, http

    async def get(self, path: str, **query: str) -> httpx.Response:
        return await self.http.get(path, params=query or None)

    async def text(self, path: str, **query: str) -> str:
        """The HTML of a page, whose status has to be 200."""
        answer = await self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def json(self, path: str, **query: str) -> Any:
        """The JSON of a path of the console's API, whose status has to be 200."""
        answer = await self.get(f"/api/v1{path}", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def token(self) -> str:
        """The token of the forms that the console shows this browser at present."""
        found = TOKEN.search(await self.text("/audit"))
        assert found is not None
        return found[1]

    async def send(self, change: str, fields: Mapping[str, str], **headers: str) -> httpx.Response:
        """Submit the form of a change, with the headers and the token that a browser sends."""
        form = {"form_token": await self.token(), **fields}
        return await self.http.post(f"/do/{change}", data=form, headers={**ORIGIN, **headers})

    async def done(self, change: str, fields: Mapping[str, str]) -> str:
        """Submit the form of a change that has to succeed; returns the message of the page that follows."""
        answer = await self.send(change, fields)
        assert answer.status_code == 303, answer.text
        page = await self.text(answer.headers["location"])
        found = re.search(r'role="status">([^<]+)<', page)
        assert found is not None
        return found[1]


@asynccontextmanager
async def console(
    world: World,
    *,
    write: bool = False,
    entrance: Entrance | None = None,
    credentials: Credentials | None = None,
    names: Sequence[str] = ("test",),
) -> AsyncIterator[Browser]:
    """A console of the cluster, reached under these names, and a browser that has not opened its link."""
    options = {"name_servers": world.name_server, "runtime": world.runtime, "credentials": credentials}
    clock = world.runtime.clock
    made = Console(
        dict.fromkeys(names, options),
        clock.monotonic,
        clock.now_ms,
        entrance=entrance or Entrance(frozenset({HOST})),
        write=write,
    )
    transport = httpx.ASGITransport(app=made.app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as http:
            yield Browser(made, http)
    finally:
        await made.close()


@asynccontextmanager
async def opened(
    world: World,
    *,
    write: bool = False,
    credentials: Credentials | None = None,
    names: Sequence[str] = ("test",),
) -> AsyncIterator[Browser]:
    """A console of the cluster, and a browser that has opened its link."""
    async with console(world, write=write, credentials=credentials, names=names) as browser:
        assert (await browser.get("/", token=browser.console.sessions.token)).status_code == 303
        yield browser


@asynccontextmanager
async def leaving(browser: Browser, path: str, query: str) -> AsyncIterator[None]:
    """A browser that requests a page and stops loading it at the end of the block."""
    cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8082),
    }
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def hear(_: object) -> None:
        """Drop the response: the browser is gone."""

    asking = asyncio.create_task(browser.console.app(scope, told.get, hear))
    yield
    told.put_nowait({"type": "http.disconnect"})
    await asking


async def sent(world: World, topic: str, *bodies: bytes, queues: int = 2, **properties: str) -> list[str]:
    """Make the topic and send messages with the key "k" to it; returns their ids."""
    async with world.admin() as admin:
        await admin.topics.create(topic, queues=queues)
    async with world.producer() as producer:
        return [
            (await producer.send(Message(topic, body, keys="k", properties=properties))).message_id
            for body in bodies
        ]
