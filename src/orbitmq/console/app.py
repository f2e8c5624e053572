"""The HTTP side of the console: who is let in, which page a path names, and what every answer carries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orbitmq.console.audit import Audit
from orbitmq.console.changes import CHANGES, Change, Cluster, Done
from orbitmq.console.look import Look
from orbitmq.console.model import Link, Page, as_csv, plain
from orbitmq.console.rights import ADMIN, OPERATOR, VIEWER, may
from orbitmq.console.sessions import Plan, Session, Sessions
from orbitmq.console.texts import BY_LANGUAGE, LANGUAGES, language_of
from orbitmq.console.ways import Asked, ClusterOfPages, page_of
from orbitmq.durations import instant
from orbitmq.errors import OrbitError

COOKIE: Final = "orbitmq_console"
MOST_FORM_BYTES: Final = 1024 * 1024
MOST_FIELDS: Final = 1000
# A change may ask several servers one after the other. After so long nobody waits for it any more.
CHANGE_S: Final = 15.0
# Resets that can be taken back.
MOST_UNDOS: Final = 100
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Of downloads: whatever the file is, nothing in it may run.
DOWNLOAD_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; sandbox"}
API: Final = "/api/v1"
Handler = Callable[[Request, Session], Awaitable[Response]]


class Console:
    """The pages of one cluster as an ASGI application, in ``app``.

    Args:
        options: of every client: name servers, credentials, TLS, the runtime.
        monotonic, now_ms: the clocks, in seconds and in milliseconds since 1970.
        name: of the cluster, for the title.
        hosts: the values of the header Host that are let in.
        write: whether the link's session may make changes.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        *,
        name: str,
        hosts: frozenset[str],
        write: bool = False,
    ) -> None:
        self.sessions = Sessions(monotonic)
        self.audit = Audit(now_ms)
        self._cluster = ClusterOfPages(options, monotonic)
        self._look = Look(name)
        self._now_ms, self._hosts = now_ms, hosts
        self._role = ADMIN if write else VIEWER
        self._undos: dict[str, Plan] = {}
        self._changing: set[asyncio.Task[Done]] = set()
        get, post = self._of_session, ["POST"]
        self._inner = Starlette(
            routes=[
                Mount("/static", StaticFiles(packages=[("orbitmq.console", "static")])),
                Route("/leave", get(self._leave), methods=post),
                Route(API + "/session", get(self._session)),
                Route(API + "/do/{change}", get(self._change), methods=post),
                Route("/do/{change}", get(self._change), methods=post),
                Route("/messages/{id}/download", get(self._download)),
                Route(API + "{path:path}", get(self._json)),
                Route("/{path:path}", get(self._html)),
            ]
        )

    async def close(self) -> None:
        """Close all connections. Changes that are under way are ended."""
        for task in list(self._changing):
            task.cancel()
        await asyncio.gather(*self._changing, return_exceptions=True)
        await self._cluster.close()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """The application: refuses foreign hosts, and gives every answer the headers of safety."""

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                added = [(name, value) for name, value in more if name not in known]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if scope["type"] != "http":
            await self._inner(scope, receive, send)
        elif [value for name, value in scope["headers"] if name == b"host"] not in self._host_lines:
            await Response("wrong Host\n", 421, media_type="text/plain")(scope, receive, guarded)
        else:
            await self._inner(scope, receive, guarded)

    @property
    def _host_lines(self) -> list[list[bytes]]:
        """What the lines Host of a request may be: one line, with one of the names."""
        return [[name.encode()] for name in self._hosts]

    # -- who asks ------------------------------------------------------------------------------------------

    def _of_session(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            if token := request.query_params.get("token"):
                name = self.sessions.open_by_token(token, self._role)
                if name is not None:
                    return self._opened(request, name)
            session = self.sessions.of(request.cookies.get(COOKIE, ""))
            if session is None:
                texts = BY_LANGUAGE[language_of(request.headers.get("accept-language", ""))]
                return self._failed(request, None, texts("closed"), 401)
            if (language := request.query_params.get("lang")) in LANGUAGES:
                session.language = str(language)
            try:
                return await handler(request, session)
            except TimeoutError:
                return self._failed(request, session, BY_LANGUAGE[session.language]("too_slow"), 504)
            except OrbitError as error:
                return self._failed(request, session, str(error), 400)

        return handle

    def _opened(self, request: Request, name: str) -> Response:
        session = self.sessions.of(name)
        assert session is not None
        session.language = language_of(request.headers.get("accept-language", ""))
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, name, httponly=True, samesite="strict", path="/")
        return answer

    def _failed(self, request: Request, session: Session | None, text: str, code: int) -> Response:
        """An error for a program, or for a person as a page with the way back."""
        if request.url.path.startswith(API + "/"):
            return _json({"error": text}, code)
        if session is None:
            return Response(self._look.alone(text), code, media_type="text/html")
        name = request.path_params.get("path", "").strip("/").partition("/")[0]
        page = Page(self._look.menu_of(name), "", plain(text, "bad"))
        return Response(self._look.page(page, session, request.query_params), code, media_type="text/html")

    async def _session(self, request: Request, session: Session) -> Response:
        return _json({"user": session.user, "role": session.role, "form_token": session.form_token()})

    async def _leave(self, request: Request, session: Session) -> Response:
        await self._form(request, session)
        self.sessions.close(request.cookies.get(COOKIE, ""))
        answer = Response(self._look.alone(BY_LANGUAGE[session.language]("left")), media_type="text/html")
        answer.delete_cookie(COOKIE)
        return answer

    # -- pages ---------------------------------------------------------------------------------------------

    async def _page(self, request: Request, session: Session) -> Page | None:
        parts = tuple(part for part in request.path_params["path"].split("/") if part)
        if parts == ("audit",):
            return self.audit.page()
        query = request.query_params
        asked = Asked(parts, query, tuple(query.getlist("chosen")), session, self._now_ms())
        page = await page_of(self._cluster, asked, self._undos.get)
        if page is not None and len(parts) == 2 and parts[0] == "groups":
            page = replace(page, links=(*page.links, *self._undo_links(parts[1])))
        return page

    def _undo_links(self, group: str) -> list[Link]:
        found = [(name, plan) for name, plan in self._undos.items() if plan.group == group]
        return [
            Link(
                "undo",
                f"/groups/{group}/undo?{urlencode({'of': name})}",
                OPERATOR,
                {"at": f"{instant(plan.at_ms):%H:%M:%S}"},
            )
            for name, plan in found[-1:]
        ]

    async def _html(self, request: Request, session: Session) -> Response:
        page = await self._page(request, session)
        if page is None:
            return self._failed(request, session, BY_LANGUAGE[session.language]("no_page"), 404)
        if (wanted := request.query_params.get("csv")) is not None:
            for table in page.tables:
                if table.name == wanted:
                    return _attachment(as_csv(table).encode(), f"{wanted}.csv", "text/csv; charset=utf-8")
            return self._failed(request, session, BY_LANGUAGE[session.language]("no_page"), 404)
        return Response(self._look.page(page, session, request.query_params), media_type="text/html")

    async def _json(self, request: Request, session: Session) -> Response:
        page = await self._page(request, session)
        if page is None:
            return _json({"error": "there is no such page"}, 404)
        return _json(page.as_json(BY_LANGUAGE["en"].of(page.sentence)))

    async def _download(self, request: Request, session: Session) -> Response:
        if not may(session.role, VIEWER):
            return self._failed(request, session, BY_LANGUAGE[session.language]("bodies_hidden"), 403)
        topic = request.query_params.get("topic", "")
        message = await self._cluster.admin.messages.get(request.path_params["id"], topic=topic or None)
        return _attachment(bytes(message.body), "message.bin", "application/octet-stream")

    # -- changes -------------------------------------------------------------------------------------------

    async def _form(self, request: Request, session: Session) -> Mapping[str, str] | Response:
        """The fields of a form of this session that was not sent before; else the answer that refuses it."""
        texts = BY_LANGUAGE[session.language]
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM_BYTES:
                return self._failed(request, session, texts("too_large"), 413)
        try:
            given = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            return self._failed(request, session, texts("broken_form"), 400)
        fields = {name: values[-1].replace("\r\n", "\n") for name, values in given.items()}
        origin = urlsplit(request.headers.get("origin", ""))
        known = origin.netloc.lower() in self._hosts and origin.scheme == request.url.scheme
        if not known:
            return self._failed(request, session, texts("wrong_form"), 403)
        if not session.take(fields.get("form_token", "")):
            return self._failed(request, session, texts("wrong_form"), 409)
        return fields

    async def _change(self, request: Request, session: Session) -> Response:
        texts = BY_LANGUAGE[session.language]
        name = request.path_params["change"]
        change = CHANGES.get(name)
        if change is None:
            return self._failed(request, session, texts("no_page"), 404)
        if not may(session.role, change.needs):
            key = "reading_only" if session.user == "link" else "not_permitted"
            text = texts(key).format(role=session.role, needs=change.needs)
            return self._failed(request, session, text, 403)
        fields = await self._form(request, session)
        if isinstance(fields, Response):
            return fields
        done = await self._made(request, session, name, change, fields)
        if request.url.path.startswith(API + "/"):
            return _json({"done": BY_LANGUAGE["en"].of(done.said), "page": done.path})
        session.said = done.said
        return RedirectResponse(done.path, 303)

    async def _made(
        self, request: Request, session: Session, name: str, change: Change, fields: Mapping[str, str]
    ) -> Done:
        """Make a change, and write down what came of it, also when the browser does not wait for that."""

        async def make() -> Done:
            target, outcome, done = fields.get(change.target, ""), "not confirmed", None
            try:
                async with asyncio.timeout(CHANGE_S):
                    done = await change.make(cluster, fields)
                target, outcome = done.target, "done"
                return done
            except TimeoutError:
                outcome = f"no answer within {CHANGE_S:g} s; it may still be made"
                raise
            except OrbitError as error:
                outcome = str(error)
                raise
            finally:
                self._cluster.asker.forget()
                self.audit.note(
                    user=session.user,
                    address=request.client.host if request.client else "",
                    change=name,
                    target=target,
                    before=done.before if done else "",
                    after=done.after if done else "",
                    outcome=outcome,
                )

        cluster = Cluster(
            self._cluster.admin, self._cluster.producer, lambda plan: session.plans.pop(plan, None)
        )
        task = asyncio.ensure_future(make())
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        done = await asyncio.shield(task)
        if done.undo is not None and done.undo.moves:
            at_ms = self._now_ms()
            self._undos[f"{at_ms}-{len(self._undos)}"] = replace(done.undo, at_ms=at_ms)
            while len(self._undos) > MOST_UNDOS:
                del self._undos[next(iter(self._undos))]
        return done


def _json(value: object, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")


def _attachment(content: bytes, name: str, media_type: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', **DOWNLOAD_POLICY}
    return Response(content, media_type=media_type, headers=headers)
