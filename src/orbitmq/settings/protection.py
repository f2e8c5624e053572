"""Settings that require access control, or TLS, that a server does not have.

A server that ignored them would serve everybody although the file requires protection. So the start is
refused, unless ``allowOpen=true`` is set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orbitmq.settings import properties_text
from orbitmq.settings.typed import ConfigError, line_of

OPEN_KEY = "allowOpen"
# Their values are flags. Java reads "yes" as false, but a user who writes it wants protection.
_SWITCHES = frozenset({"authenticationenabled", "authorizationenabled", "aclenable", "usetls", "tlsenable"})
_TLS = "tls.server.mode and its certificate (docs/operations.md)"
_KEYS = "authenticationEnabled with users and rules (docs/security.md)"
# The settings to use in place of one that a server lacks; for all others, the keys of TLS.
_INSTEAD = {"aclenable": _KEYS, "authenticationenabled": _KEYS, "authorizationenabled": _KEYS}
_OFF = frozenset({"", "false", "no", "off", "0", "none"})


def is_asked(key: str, value: str) -> bool:
    """Whether the setting requires TLS or access control; its key may be in upper or lower case."""
    name, lowered = key.lower(), value.strip().lower()
    return (name in _SWITCHES or name.startswith("tls.")) and lowered not in _OFF


def sentence(key: str, value: str) -> str | None:
    """The warning about a protection setting with which a server starts; ``None``: no such setting."""
    if is_asked(key, value):
        return f"{key}={value} has no effect ({OPEN_KEY}=true): this server cannot do that"
    if key.lower() in _SWITCHES or key.lower().startswith("tls."):
        return f"{key} has no effect here"
    return None


def check(
    text: str, overrides: Mapping[str, str], *, is_open: bool, built: Collection[str] = frozenset()
) -> None:
    """Refuse settings that require protection, unless the server ``is_open`` on purpose.

    Args:
        text: the text of a configuration file.
        overrides: settings that win over it.
        built: keys of protection that this server has.

    Raises:
        ConfigError: the error names the first such key, its value and its line, and the other keys.
    """
    settings = {**properties_text.parse(text), **overrides}
    asked = [key for key, value in settings.items() if key not in built and is_asked(key, value)]
    if not asked or is_open:
        return
    key, *others = asked
    more = f", nor {', '.join(others)}" if others else ""
    raise ConfigError(
        key,
        settings[key],
        f"no such setting{more}: this server does not have it; use {_INSTEAD.get(key.lower(), _TLS)}. "
        f"{OPEN_KEY}=true starts it all the same, unprotected",
        None if key in overrides else line_of(text, key),
    )
