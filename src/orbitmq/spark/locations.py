"""Places on file systems as Spark and pyarrow name them."""

from __future__ import annotations

# Hadoop's names of schemes that pyarrow calls otherwise.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def pyarrow_uri(location: str) -> str:
    """A location as ``pyarrow.fs`` understands it; paths stay what they are."""
    scheme, separator, rest = location.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"
