"""Locations on file systems, as Spark and as pyarrow name them."""

from __future__ import annotations

import re

# URI schemes for which pyarrow has another name than Hadoop.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_ERRNO = re.compile(r"\[errno \d+\] ", re.IGNORECASE)


def pyarrow_uri(location: str) -> str:
    """A location in the form of ``pyarrow.fs``; paths stay unchanged."""
    scheme, separator, rest = location.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def failure_text(error: Exception) -> str:
    """The text of a file system's error in one line: the operation and the reason."""
    said = _ERRNO.sub("", " ".join(str(error).split()))
    failed, _, reason = said.partition(". Detail: ")
    return f"{failed}: {reason}" if reason else failed
