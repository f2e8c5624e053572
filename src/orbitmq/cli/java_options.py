"""TLS settings in the places where RocketMQ's servers and tools read them: Java options, a file below /etc.

``mqbroker``, ``mqnamesrv`` and ``mqadmin`` obey them; a user who set them believes that connections are
encrypted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from orbitmq.cli.failures import UsageError, text_of

VARIABLES = ("JAVA_OPT", "JAVA_OPT_EXT", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
TLS_FILE = "/etc/rocketmq/tls.properties"


def _given() -> Mapping[str, str]:
    """The ``-Dkey=value`` options as properties text, by the environment variable that holds them."""
    found = {}
    for variable in VARIABLES:
        words = os.environ.get(variable, "").split()
        found[f"${variable}"] = "\n".join(word[2:] for word in words if word.startswith("-D"))
    return found


def refuse_tls_of_server(*, is_open: bool) -> None:
    """Refuse to start a server when these settings ask for TLS.

    Raises:
        UsageError: it names the variable or the file.
    """
    from orbitmq.settings import protection

    found = {**_given(), **({TLS_FILE: text_of(TLS_FILE)} if os.path.exists(TLS_FILE) else {})}
    for place, text in found.items():
        try:
            protection.check(text, {}, is_open=is_open)
        except ValueError as error:
            raise UsageError(f"{place}: {error}") from error


def refuse_tls_of_tool(*, spoken: bool) -> None:
    """Refuse to send in clear when these settings ask the tools for TLS, and ours do not.

    Args:
        spoken: whether TLS is spoken.

    Raises:
        UsageError: it names the variable.
    """
    if spoken or any(os.environ.get(name) for name in ("ORBITMQ_TLS", "ORBITMQ_TLS_CA", "ORBITMQ_TLS_CERT")):
        return
    for place, text in _given().items():
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "tls.enable" and value.lower() == "true":
                raise UsageError(
                    f"{place} has -D{line}: set ORBITMQ_TLS=true or ORBITMQ_TLS_CA to speak TLS, "
                    "or unset it to talk in clear"
                )
