"""The HTTP side of the console: sessions, logins, the page of each path, the headers of all answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import ceil
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orbitmq.console.audit import Audit
from orbitmq.console.changes import CHANGES
from orbitmq.console.clusters import clusters as page_of_clusters
from orbitmq.console.entrance import Entrance
from orbitmq.console.look import Look
from orbitmq.console.maker import Maker, Wish
from orbitmq.console.model import Link, Page, as_csv, plain
from orbitmq.console.places import API, Places
from orbitmq.console.rights import ADMIN, VIEWER, may
from orbitmq.console.risks import Risk, asking
from orbitmq.console.sessions import Session, Sessions
from orbitmq.console.texts import BY_LANGUAGE, LANGUAGES, Texts, language_of
from orbitmq.console.ways import Asked, ClusterOfPages, overview_of, page_of
from orbitmq.errors import OrbitError

MOST_FORM_BYTES: Final = 1024 * 1024
MOST_FIELDS: Final = 1000
POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# The policy of pages with charts, which the console's scripts draw from values that they fetch from the
# console.
CHARTS_POLICY: Final = {"Content-Security-Policy": f"{POLICY}; script-src 'self'; connect-src 'self'"}
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer, with which browsers would send "Origin: null" with the forms of these pages.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SECURE: Final = {"Strict-Transport-Security": "max-age=31536000"}
# The policy of downloads, so that no script in a downloaded file runs.
DOWNLOAD_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; sandbox"}
# The key of the cluster's name in a request's scope.
_CLUSTER: Final = "orbitmq.cluster"
Handler = Callable[[Request, Session], Awaitable[Response]]


class Console:
    """The pages of one or several clusters as an ASGI application, in ``app``.

    Args:
        clusters: by the clusters' names, the options of their clients (name servers, credentials, TLS, the
            runtime). The first cluster is shown at addresses that name none.
        monotonic, now_ms: the clocks, in seconds and in milliseconds since 1970.
        entrance: the console's host names, and the ways to log in.
        write: whether the session of the one-time link may make changes.
    """

    def __init__(
        self,
        clusters: Mapping[str, Mapping[str, Any]],
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        *,
        entrance: Entrance,
        write: bool = False,
    ) -> None:
        self.sessions = Sessions(monotonic, self._ended)
        self.audit = Audit(now_ms)
        self._places = Places(list(clusters))
        self._clusters = {name: ClusterOfPages(options, monotonic) for name, options in clusters.items()}
        # The clusters whose requests a logged-in user's keys sign, by the names that sessions have for them.
        self._of_users: dict[str, ClusterOfPages] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._look = Look(self._places)
        self._now_ms, self._entrance = now_ms, entrance
        self._role = ADMIN if write else VIEWER
        self._maker = Maker(self.audit, now_ms)
        get, post = self._of_session, ["POST"]
        self._inner = Starlette(
            routes=[
                Mount("/static", StaticFiles(packages=[("orbitmq.console", "static")])),
                Route("/login", self._login, methods=["GET", "POST"]),
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
        """End the changes under way, and close all connections."""
        await self._maker.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for cluster in (*self._clusters.values(), *self._of_users.values()):
            await cluster.close()

    def _ended(self, session: Session) -> None:
        if session.cluster:
            task = asyncio.ensure_future(self._of_users.pop(session.cluster).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application: refuses foreign hosts, and adds the security headers to every answer."""

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                secure = SECURE if self._entrance.scheme == "https" else {}
                more = [
                    (name.lower().encode(), value.encode()) for name, value in {**HEADERS, **secure}.items()
                ]
                added = [(name, value) for name, value in more if name not in known]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if scope["type"] != "http":
            await self._inner(scope, receive, send)
        elif [value for name, value in scope["headers"] if name == b"host"] not in self._host_lines:
            await Response("wrong Host\n", 421, media_type="text/plain")(scope, receive, guarded)
        elif (found := self._places.find(scope["path"])) is None:
            await Response("no such cluster\n", 404, media_type="text/plain")(scope, receive, guarded)
        else:
            cluster, path = found
            inner = {**scope, "path": path, "raw_path": quote(path).encode(), _CLUSTER: cluster}
            # A client that disconnects while it sends its request gets no answer.
            with suppress(ClientDisconnect):
                await self._inner(inner, receive, guarded)

    @property
    def _host_lines(self) -> list[list[bytes]]:
        """The values that the Host header may have: one line, with one of the console's names."""
        return [[name.encode()] for name in self._entrance.hosts]

    # -- sessions ------------------------------------------------------------------------------------------

    def _of_session(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            session = self._session_of(request)
            if isinstance(session, Response):
                return session
            if (language := request.query_params.get("lang")) in LANGUAGES:
                session.language = str(language)
            try:
                return await handler(request, session)
            except TimeoutError:
                return self._failed(request, session, BY_LANGUAGE[session.language]("too_slow"), 504)
            except OrbitError as error:
                return self._failed(request, session, str(error), 400)

        return handle

    def _session_of(self, request: Request) -> Session | Response:
        """The session of a request; else the answer that opens a session, or shows how to get one."""
        entrance, texts = self._entrance, self._texts(request)
        session = self.sessions.of(request.cookies.get(self._entrance.cookie, ""))
        if entrance.proxy is not None:
            user = entrance.proxy.user(_address(request), request.headers.getlist(entrance.proxy.header))
            if user is None:
                return self._failed(request, None, texts("no_user"), 403)
            if session is None or session.user != user.name:
                return self._opened(request, self.sessions.open(user.name, user.role))
            return session
        token = request.query_params.get("token", "")
        if token and entrance.by_link and (name := self.sessions.open_by_token(token, self._role)):
            return self._opened(request, name)
        if session is not None:
            return session
        if entrance.desk is not None and not _is_of_program(request):
            return RedirectResponse("/login", 303)
        return self._failed(request, None, texts("closed"), 401)

    def _opened(self, request: Request, name: str) -> Response:
        session = self.sessions.of(name)
        assert session is not None
        session.language = language_of(request.headers.get("accept-language", ""))
        answer = RedirectResponse("/", 303)
        secure = self._entrance.scheme == "https"
        answer.set_cookie(
            self._entrance.cookie, name, httponly=True, samesite="strict", path="/", secure=secure
        )
        return answer

    def _texts(self, request: Request) -> Texts:
        return BY_LANGUAGE[language_of(request.headers.get("accept-language", ""))]

    async def _login(self, request: Request) -> Response:
        """Show the login form, or handle the login that it sends."""
        desk, texts = self._entrance.desk, self._texts(request)
        if desk is None:
            return self._failed(request, None, texts("closed"), 401)
        if request.method != "POST":
            return self._log_in(texts)
        fields = await self._fields(request, None)
        if isinstance(fields, Response):
            return fields
        name, address = fields.get("user", "").strip(), _address(request)
        wait_s = desk.wait_s(name, address)
        if wait_s > 0 or desk.is_busy:
            answer = self._log_in(texts, texts("slow_down").format(s=ceil(wait_s) or 1), 429)
            answer.headers["retry-after"] = str(ceil(wait_s) or 1)
            return answer
        try:
            found = await desk.enter(name, fields.get("password", ""), address)
        except OrbitError as error:
            return self._log_in(texts, str(error), 400)
        outcome = "wrong user or password" if found is None else "done"
        self.audit.note(
            user=name,
            address=address,
            cluster="",
            change="login",
            target=name,
            before="",
            after="",
            outcome=outcome,
        )
        if found is None:
            return self._log_in(texts, texts("wrong_login"), 403)
        key = ""
        if found.cluster is not None:
            key = token_urlsafe(9)
            self._of_users[key] = found.cluster
        return self._opened(request, self.sessions.open(found.user, found.role, key))

    def _log_in(self, texts: Texts, text: str = "", code: int = 200) -> Response:
        return Response(self._look.login(texts, text), code, media_type="text/html")

    def _cluster(self, request: Request, session: Session) -> ClusterOfPages:
        return self._of_users[session.cluster] if session.cluster else self._clusters[_name(request)]

    def _failed(self, request: Request, session: Session | None, text: str, code: int) -> Response:
        """An error answer: JSON for a program, for a person a page with a link back."""
        if _is_of_program(request):
            return _json({"error": text}, code)
        if session is None:
            return Response(self._look.alone(text), code, media_type="text/html")
        back = self._back(request)
        path = request.url.path if request.method == "GET" else back
        name = path.strip("/").partition("/")[0].partition("?")[0]
        links = [Link("back", back)] if back else []
        page = Page(self._look.menu_of(name), "", plain(text, "bad"), links=links)
        return Response(self._text_of(page, request, session), code, media_type="text/html")

    def _text_of(self, page: Page, request: Request, session: Session) -> str:
        path = request.url.path if request.method == "GET" else "/"
        return self._look.page(page, session, request.query_params, _name(request), path)

    def _back(self, request: Request) -> str:
        """The page of this console that sent a request, by its Referer; empty without one."""
        try:
            found = urlsplit(request.headers.get("referer", ""))
        except ValueError:
            return ""
        if found.netloc.lower() not in self._entrance.hosts or not found.path.startswith("/"):
            return ""
        place = self._places.find(unquote(found.path))
        if place is None or place[0] != _name(request):
            return ""
        return "/" + quote(place[1].lstrip("/\\")) + (f"?{found.query}" if found.query else "")

    async def _session(self, request: Request, session: Session) -> Response:
        return _json({"user": session.user, "role": session.role, "form_token": session.form_token()})

    async def _leave(self, request: Request, session: Session) -> Response:
        form = await self._form(request, session)
        if isinstance(form, Response):
            return form
        self.sessions.close(request.cookies.get(self._entrance.cookie, ""))
        answer = Response(self._look.alone(BY_LANGUAGE[session.language]("left")), media_type="text/html")
        answer.delete_cookie(self._entrance.cookie)
        return answer

    # -- pages ---------------------------------------------------------------------------------------------

    async def _page(self, request: Request, session: Session) -> Page | None:
        parts = tuple(part for part in request.path_params["path"].split("/") if part)
        if parts == ("audit",):
            return self.audit.page()
        if parts == ("clusters",):
            return await self._all_clusters(request, session)
        query = request.query_params
        cluster = _name(request)
        asked = Asked(cluster, parts, query, tuple(query.getlist("chosen")), session, self._now_ms())
        making = page_of(self._cluster(request, session), asked, partial(self._maker.undo, cluster))
        page = await _unless_left(request, making)
        if page is not None and len(parts) == 2 and parts[0] == "groups":
            page = replace(page, links=(*page.links, *self._maker.undo_links(cluster, parts[1])))
        return page

    async def _all_clusters(self, request: Request, session: Session) -> Page | None:
        """The page of all clusters; ``None`` if there is only one, or the address is that of one cluster."""
        if len(self._clusters) == 1 or _name(request) != self._places.names[0]:
            return None
        made = await asyncio.gather(
            *(overview_of(cluster, self._now_ms()) for cluster in self._clusters.values())
        )
        language = "en" if _is_of_program(request) else session.language
        return page_of_clusters(dict(zip(self._clusters, made, strict=True)), BY_LANGUAGE[language])

    async def _html(self, request: Request, session: Session) -> Response:
        page = await self._page(request, session)
        if page is None:
            return self._failed(request, session, BY_LANGUAGE[session.language]("no_page"), 404)
        if (wanted := request.query_params.get("csv")) is not None:
            for table in page.tables:
                if table.name == wanted:
                    return _attachment(as_csv(table).encode(), f"{wanted}.csv", "text/csv; charset=utf-8")
            return self._failed(request, session, BY_LANGUAGE[session.language]("no_page"), 404)
        text = self._text_of(page, request, session)
        return Response(text, media_type="text/html", headers=CHARTS_POLICY if page.charts else None)

    async def _json(self, request: Request, session: Session) -> Response:
        page = await self._page(request, session)
        if page is None:
            return _json({"error": "there is no such page"}, 404)
        return _json(page.as_json(BY_LANGUAGE["en"].of(page.sentence)))

    async def _download(self, request: Request, session: Session) -> Response:
        if not may(session.role, VIEWER):
            return self._failed(request, session, BY_LANGUAGE[session.language]("bodies_hidden"), 403)
        topic = request.query_params.get("topic", "")
        message = await self._cluster(request, session).admin.messages.get(
            request.path_params["id"], topic=topic or None
        )
        return _attachment(bytes(message.body), "message.bin", "application/octet-stream")

    # -- changes -------------------------------------------------------------------------------------------

    async def _fields(self, request: Request, session: Session | None) -> Mapping[str, str] | Response:
        """The fields of a form sent from the console's pages; else the answer that refuses it."""
        texts = self._texts(request) if session is None else BY_LANGUAGE[session.language]
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM_BYTES:
                return self._failed(request, session, texts("too_large"), 413)
        try:
            given = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            return self._failed(request, session, texts("broken_form"), 400)
        origin = urlsplit(request.headers.get("origin", ""))
        known = origin.netloc.lower() in self._entrance.hosts and origin.scheme == self._entrance.scheme
        if not known:
            return self._failed(request, session, texts("wrong_form"), 403)
        return {name: values[-1].replace("\r\n", "\n") for name, values in given.items()}

    async def _form(self, request: Request, session: Session) -> Mapping[str, str] | Response:
        """The fields of a form of this session, sent for the first time; else the answer that refuses it."""
        fields = await self._fields(request, session)
        if isinstance(fields, Response) or session.take(fields.get("form_token", "")):
            return fields
        return self._failed(request, session, BY_LANGUAGE[session.language]("wrong_form"), 409)

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
        by_program, own = _is_of_program(request), self._cluster(request, session)
        wish = Wish(name, change, fields, session, _name(request), _address(request), not by_program)
        done = await self._maker.make(wish, own)
        if isinstance(done, Risk):
            page = asking(name, fields, done, self._back(request))
            return Response(self._text_of(page, request, session), media_type="text/html")
        path = self._places.base(_name(request)) + done.path
        if by_program:
            return _json({"done": BY_LANGUAGE["en"].of(done.said), "page": path})
        session.said = done.said
        return RedirectResponse(path, 303)


def _name(request: Request) -> str:
    """The name of a request's cluster."""
    return str(request.scope[_CLUSTER])


def _address(request: Request) -> str:
    """The address of the peer, not that of any header."""
    return request.client.host if request.client else ""


async def _unless_left(request: Request, work: Coroutine[Any, Any, Page | None]) -> Page | None:
    """The result of ``work``; ``None`` if the browser closes the connection, which cancels the work."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    making, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await making if making.done() else None
    finally:
        making.cancel()
        leaving.cancel()
        await asyncio.gather(making, leaving, return_exceptions=True)


def _is_of_program(request: Request) -> bool:
    return request.url.path.startswith(API + "/")


def _json(value: object, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")


def _attachment(content: bytes, name: str, media_type: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', **DOWNLOAD_POLICY}
    return Response(content, media_type=media_type, headers=headers)
