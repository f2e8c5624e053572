"""The handle by which a timer message can be recalled before its delivery."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from orbitmq.wire.errors import HeaderError


class RecallHandle(NamedTuple):
    """Names a waiting timer message.

    Attributes:
        timestamp: the delivery time plus one, in milliseconds since the epoch, as text.
        message_id: the message's property ``UNIQ_KEY``.
    """

    topic: str
    broker_name: str
    timestamp: str
    message_id: str

    def encode(self) -> str:
        """URL-safe Base64 of ``v1 topic broker timestamp id``."""
        return base64.urlsafe_b64encode(" ".join(("v1", *self)).encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """Read a handle.

        Raises:
            HeaderError: the text is not Base64, or has not the five words of version 1.
        """
        try:
            padded = handle.rstrip("=")
            padded += "=" * (-len(padded) % 4)
            words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError) as error:
            raise HeaderError(f"recallHandle {handle[:80]!r} is not Base64 of UTF-8 text") from error
        if len(words) < 5 or words[0] != "v1":
            raise HeaderError(
                f"recallHandle has {len(words)} words and version {words[0][:20]!r}; expected v1 and 5"
            )
        return cls(*words[1:5])
