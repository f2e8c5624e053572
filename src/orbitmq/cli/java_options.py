"""TLS settings from the sources of RocketMQ's servers and tools: Java options and a file below /etc.

RocketMQ's ``mqbroker``, ``mqnamesrv`` and ``mqadmin`` obey them. OrbitMQ's servers do so, too, while its
tools have settings of their own.
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


def with_tls(conf: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides of a server, extended by the TLS settings in Java options and in the file of
    tls.config.file.

    Args:
        conf: the text of the server's own file.

    Raises:
        UsageError: a setting has different values in two sources, or needs a missing part; the text names the
            variable or the file.
    """
    from orbitmq.settings import properties_text, protection, tls

    found = dict(overrides)
    own = {**properties_text.parse(conf), **found}
    is_open = own.get(protection.OPEN_KEY, "").lower() == "true"
    places = {place: text for place, text in _given().items() if text}
    named = [properties_text.parse(text).get(tls.FILE_KEY, "") for text in (*places.values(), conf)]
    file = found.get(tls.FILE_KEY) or next(filter(None, named), "")
    if not file and os.path.exists(TLS_FILE):
        file = TLS_FILE
    if file:
        file = os.path.expanduser(file)
        places[file] = text_of(file)
        # The file's settings are merged here, so the key that names the file is left empty.
        found[tls.FILE_KEY] = ""
    for place, text in places.items():
        try:
            protection.check(text, {}, is_open=is_open, built=tls.KEYS)
            found = tls.merged(conf, found, properties_text.parse(text), place)
        except ValueError as error:
            raise UsageError(f"{place}: {error}") from error
    return found


def refuse_tls_of_tool(*, spoken: bool) -> None:
    """Refuse plain TCP if RocketMQ's settings require TLS for tools and the settings of OrbitMQ's tools do
    not.

    Args:
        spoken: whether the command uses TLS.

    Raises:
        UsageError: TLS is required; the text names the variable.
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
