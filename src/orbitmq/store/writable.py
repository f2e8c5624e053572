"""Whether a store takes messages, and why not."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class WriteGate:
    """Whether a store takes messages; the reason is a clause: "the disk of /x is 91% full".

    Attributes:
        refusal: why no message is taken; ``None``: messages are taken.
    """

    def __init__(self) -> None:
        self.refusal: str | None = "it is not started"

    def begin(self) -> None:
        """Take messages, since the store has started."""
        self.refusal = None

    def end(self) -> None:
        """Refuse messages, since the store stops."""
        self.refusal = "it is stopped"

    def refuse(self, reason: str) -> None:
        """Refuse messages until :meth:`accept`."""
        if self.refusal is None:
            logger.warning("the store takes no messages: %s", reason)
        self.refusal = reason

    def accept(self) -> None:
        """Take messages again."""
        logger.info("the store takes messages again")
        self.refusal = None

    def write_failed(self, error: OSError) -> None:
        self.refuse(f"the commit log could not be written ({error}); it is tried again")

    def flush_failed(self, error: BaseException) -> None:
        self.refuse(
            f"a flush of the commit log failed ({error}); restart the broker after repairing the disk"
        )

    def queues_failed(self, error: OSError) -> None:
        self.refuse(f"the consume queues could not be written ({error}); it is tried again")
