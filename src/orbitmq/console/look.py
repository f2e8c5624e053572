"""Renders pages as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from orbitmq.console.model import (
    Column,
    Page,
    Row,
    moment_text,
    number_text,
    release_text,
    size_text,
    span_text,
    time_text,
    viewed,
)
from orbitmq.console.places import API, Places
from orbitmq.console.rights import OPERATOR, may
from orbitmq.console.sessions import Session
from orbitmq.console.texts import BY_LANGUAGE, LANGUAGES, Texts
from orbitmq.console.timeline import brief_text

MENU: Final = (
    "overview",
    "charts",
    "topics",
    "groups",
    "messages",
    "dead-letters",
    "brokers",
    "clients",
    "timers",
    "traces",
    "access",
    "audit",
)
# The colours of states; other states have none.
TONES: Final[Mapping[str, str]] = {
    "ok": "good",
    "at_once": "good",
    "in_sync": "good",
    "done": "good",
    "passed": "good",
    "allowed": "good",
    "delivered": "good",
    "success": "good",
    "COMMIT_MESSAGE": "good",
    "running": "warn",
    "waiting": "warn",
    "paused": "warn",
    "not_in_sync": "warn",
    "off": "warn",
    "look": "warn",
    "handed_out": "warn",
    "unknown": "warn",
    "nothing returned": "warn",
    "ROLLBACK_MESSAGE": "warn",
    "silent": "bad",
    "refuses": "bad",
    "disk_full": "bad",
    "late": "bad",
    "failed": "bad",
    "failure": "bad",
    "exception": "bad",
    "timeout": "bad",
    "refused": "bad",
    "trouble": "bad",
}
# The kinds of columns whose values are aligned to the right.
NUMBERS: Final = frozenset({"number", "bytes", "seconds", "brief"})
SHARE: Final = Markup(
    '<span class="share"><meter min="0" max="1" high="0.85" value="{}" aria-hidden="true"></meter>{}</span>'
)
_TEXT_OF: Final[Mapping[str, Callable[[Any], str]]] = {
    "number": number_text,
    "bytes": size_text,
    "seconds": span_text,
    "brief": brief_text,
    "time": time_text,
    "moment": moment_text,
    "release": release_text,
    "share": lambda value: "" if value is None else f"{value:.0%}",
}


class Look:
    """The templates of one console.

    Args:
        places: the console's clusters.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        loader = PackageLoader("orbitmq.console")
        templates = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        templates.globals |= {
            "tones": TONES,
            "numbers": NUMBERS,
            "cell": cell,
            "value_text": value_text,
            "viewed": viewed,
        }
        self._page = templates.get_template("page.html")
        self._login = templates.get_template("login.html")
        self._alone = templates.get_template("alone.html")

    def menu_of(self, name: str) -> str:
        """The menu entry of a page's name."""
        return name if name in (*MENU, "clusters") else "overview"

    def page(self, page: Page, session: Session, query: Mapping[str, str], cluster: str, path: str) -> str:
        """The HTML of a page, with the parts that this session may see, and once the result of its last
        change.

        Args:
            path: the page's path, without the mark of its cluster.
        """
        first, session.said = session.said, None
        kept = urlencode(_kept(query))
        other = next(language for language in LANGUAGES if language != session.language)
        return self._page.render(
            page=page,
            t=BY_LANGUAGE[session.language],
            other=other,
            cluster=cluster,
            base=self._places.base(cluster),
            clusters=[(name, self._places.base(name)) for name in self._places.names],
            menu=("clusters", *MENU) if len(self._places.names) > 1 else MENU,
            first=first,
            may=lambda needs: may(session.role, needs),
            writes=may(session.role, OPERATOR),
            session=session,
            form_token=session.form_token(),
            query=query,
            json=f"{API}{self._places.base(cluster)}{quote(path)}" + (f"?{kept}" if kept else ""),
            href=lambda **changed: "?" + urlencode({**_kept(query), **changed}),
        )

    def login(self, texts: Texts, text: str) -> str:
        """The login page, which asks for name and password."""
        return self._login.render(t=texts, text=text, cluster=", ".join(self._places.names))

    def alone(self, text: str) -> str:
        """A page with one sentence, for browsers without a session."""
        return self._alone.render(text=text)


def _kept(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name not in ("lang", "token", "csv")}


def cell(column: Column, row: Row, texts: Texts, base: str) -> Markup:
    """The content of a table's cell. It is not made by the template, which would be slow for hundreds of
    cells.

    Args:
        base: the beginning of the addresses of the cluster's pages.
    """
    value, kind = row[column.key], column.kind
    text = escape(value_text(value, kind))
    if kind == "state":
        if not value:
            return Markup()
        return Markup('<span class="state {}">{}</span>').format(TONES.get(value, ""), texts.state(value))
    if kind == "step":
        return escape(texts(f"step.{value}"))
    if kind == "body":
        return Markup("<pre>{}</pre>").format(text)
    if kind == "share" and value is not None:
        return SHARE.format(value, text)
    code = ' class="code"' if kind == "code" else ""
    if target := column.target(row):
        return Markup(f'<a href="{escape(base + target)}"{code}>{text}</a>')  # noqa: S704  # all escaped
    return Markup(f"<span{code}>{text}</span>") if code else text  # noqa: S704  # text is escaped


def value_text(value: Any, kind: str) -> str:
    if value is None:
        return ""
    made = _TEXT_OF.get(kind)
    return str(value) if made is None or isinstance(value, str) else made(value)
