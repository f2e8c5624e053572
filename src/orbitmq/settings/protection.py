"""Settings that ask for TLS or access control, which these servers do not have yet.

A server that ignored them would serve everybody in clear although the file asks for protection. So the start
is refused, unless ``allowOpen=true`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.settings import properties_text
from orbitmq.settings.typed import ConfigError, line_of

OPEN_KEY = "allowOpen"
# Their values are flags. Java reads "yes" as false, but a user who writes it wants protection.
_SWITCHES = frozenset({"authenticationenabled", "authorizationenabled", "aclenable", "usetls", "tlsenable"})
_OFF = frozenset({"", "false", "no", "off", "0", "none"})
# These values are no protection at RocketMQ either: a permissive server serves clients without TLS.
_OPEN_VALUES = {
    "tls.server.mode": frozenset({"disabled", "permissive"}),
    "tls.server.need.client.auth": frozenset({"optional"}),
}
# This key says where certificates come from, not whether they are needed.
_NO_PROTECTION = frozenset({"tls.test.mode.enable"})


def is_asked(key: str, value: str) -> bool:
    """Whether the setting asks for TLS or access control, in whatever case its key is written."""
    name, lowered = key.lower(), value.strip().lower()
    if name in _NO_PROTECTION or not (name in _SWITCHES or name.startswith("tls.")):
        return False
    return lowered not in _OFF and lowered not in _OPEN_VALUES.get(name, ())


def sentence(key: str, value: str) -> str | None:
    """The warning about a protection setting with which a server starts; ``None``: no such setting."""
    if is_asked(key, value):
        return f"{key}={value} has no effect ({OPEN_KEY}=true): everybody is served in clear"
    if key.lower() == "tls.server.mode" and value.strip().lower() == "permissive":
        return (
            f"{key}={value}: there is no TLS yet, clients are served in clear and those with TLS are refused"
        )
    if key.lower() in _SWITCHES or key.lower().startswith("tls."):
        return f"{key} has no effect here"
    return None


def check(text: str, overrides: Mapping[str, str], *, is_open: bool) -> None:
    """Refuse settings that ask for protection, unless the server ``is_open`` on purpose.

    Args:
        text: a configuration file's.
        overrides: settings that win over it.

    Raises:
        ConfigError: it names the first such key, its value and its line, and the other keys.
    """
    settings = {**properties_text.parse(text), **overrides}
    asked = [key for key, value in settings.items() if is_asked(key, value)]
    if not asked or is_open:
        return
    key, *others = asked
    more = f", nor {', '.join(others)}" if others else ""
    raise ConfigError(
        key,
        settings[key],
        f"no such setting{more}: there is neither TLS nor access control here yet, everybody would be served "
        f"in clear; {OPEN_KEY}=true starts the server all the same",
        None if key in overrides else line_of(text, key),
    )
