"""Advice about TLS in the words of the command line.

The clients' errors name Python's options, such as ``Tls(ca=...)``. A user of the command line has the fields
of a context and the variables of the environment in their place.
"""

from __future__ import annotations

import re
from typing import Final

_CREATE: Final = "'orbitmq context create'"
# By what the library says. A longer text goes before a shorter one that it begins with.
_WORDS: Final = {
    "leave out tls,": "leave out --tls, --ca and --cert of the context (ORBITMQ_TLS, ORBITMQ_TLS_CA),",
    "tls=Tls(ca=...)": f"--ca of {_CREATE} or ORBITMQ_TLS_CA",
    "Tls(ca=...)": f"--ca of {_CREATE} or ORBITMQ_TLS_CA",
    "Tls(cert=..., key=...)": f"--cert and --key of {_CREATE} or ORBITMQ_TLS_CERT and ORBITMQ_TLS_KEY",
    "Tls(check_host=False)": f"--no-check-host of {_CREATE} or ORBITMQ_TLS_CHECK_HOST=false",
    "Tls.ca": "--ca of the context or ORBITMQ_TLS_CA",
    "Tls.cert": "--cert of the context or ORBITMQ_TLS_CERT",
    "Tls.key": "--key of the context or ORBITMQ_TLS_KEY",
}
_FOUND: Final = re.compile("|".join(map(re.escape, _WORDS)))


def as_options(text: str) -> str:
    """The text of an error with the options that a user of the command line can give."""
    return _FOUND.sub(lambda found: _WORDS[found[0]], text)
