"""The sessions of browsers, which a one-time token or a login opens, and which end when idle."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from orbitmq.admin import Move
from orbitmq.console.model import Said
from orbitmq.console.rights import VIEWER

TOKEN_S: Final = 600.0
IDLE_S: Final = 1800.0
MOST: Final = 1000
# The most unsent forms and the most plans of resets that a session keeps; the oldest are dropped first.
MOST_FORMS: Final = 200
MOST_PLANS: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """A reset of a group that was previewed but not made yet, or that undoes a reset made at ``at_ms``."""

    group: str
    moves: tuple[Move, ...]
    at_ms: int = 0


@dataclass(slots=True)
class Session:
    """The session of one browser.

    Attributes:
        seen: when the last request came, in seconds of the clock.
        user: the user's name for the audit log.
        role: the user's role, which decides about the allowed pages and changes.
        said: the first sentence of the next page.
        cluster: the name of the cluster whose requests the user's keys sign; empty if the console's keys do.
        stopped: by the cluster's name, the address that continues the last search that the browser stopped.
    """

    seen: float
    user: str = "link"
    role: str = VIEWER
    language: str = "en"
    said: Said | None = None
    cluster: str = ""
    forms: dict[str, None] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    def form_token(self) -> str:
        """A new token for the forms of one page. It is valid for one sending of one of them."""
        token = secrets.token_urlsafe(18)
        self.forms[token] = None
        _shorten(self.forms, MOST_FORMS)
        return token

    def take(self, token: str) -> bool:
        """Use up the token of a form; returns whether the form was shown and not sent before."""
        return token in self.forms and self.forms.pop(token, False) is None

    def keep(self, plan: Plan) -> str:
        """Keep a previewed plan; returns its name."""
        name = secrets.token_urlsafe(9)
        self.plans[name] = plan
        _shorten(self.plans, MOST_PLANS)
        return name


class Sessions:
    """The one-time token and the sessions, which are kept only in memory.

    Args:
        monotonic: the clock, in seconds.
        ended: called with each session that ends.
    """

    def __init__(self, monotonic: Callable[[], float], ended: Callable[[Session], None]) -> None:
        self._monotonic, self._ended = monotonic, ended
        self._begun = monotonic()
        self._token: str | None = secrets.token_urlsafe(24)
        self._sessions: dict[str, Session] = {}

    @property
    def token(self) -> str:
        """The one-time token; empty once it was used."""
        return self._token or ""

    def open_by_token(self, token: str, role: str) -> str | None:
        """The name of a new session; ``None`` if the token is wrong, used or too old."""
        own = self._token
        if own is None or self._monotonic() - self._begun > TOKEN_S:
            return None
        if not secrets.compare_digest(token.encode(), own.encode()):
            return None
        self._token = None
        return self.open("link", role)

    def open(self, user: str, role: str, cluster: str = "") -> str:
        """The name of a new session of that user. Idle sessions end here at the latest."""
        now = self._monotonic()
        for old in [name for name, one in self._sessions.items() if now - one.seen > IDLE_S]:
            self.close(old)
        while len(self._sessions) >= MOST:
            self.close(min(self._sessions, key=lambda one: self._sessions[one].seen))
        name = secrets.token_urlsafe(24)
        self._sessions[name] = Session(now, user, role, cluster=cluster)
        return name

    def of(self, name: str) -> Session | None:
        """The session of this name, whose idle time begins anew; ``None`` if there is none any more."""
        session = self._sessions.get(name)
        if session is None:
            return None
        now = self._monotonic()
        if now - session.seen > IDLE_S:
            self.close(name)
            return None
        session.seen = now
        return session

    def close(self, name: str) -> None:
        """End a session."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._ended(session)


def _shorten(table: dict[str, Any], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
