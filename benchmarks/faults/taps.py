"""Counts the pulls that pass a relay."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.frame import decode_frame
from orbitmq.wire.headers.pull import PullMessageRequest

LENGTH_BYTES = 4


def pull_tap(note: Callable[[str, str, int], None]) -> Callable[[], Callable[[bytes], None]]:
    """A value for :attr:`Way.open_tap` of a way towards a broker.

    Args:
        note: called with topic, group and queue id of each pull.
    """

    def opened() -> Callable[[bytes], None]:
        pending = bytearray()

        def seen(data: bytes) -> None:
            pending.extend(data)
            while len(pending) >= LENGTH_BYTES:
                size = LENGTH_BYTES + int.from_bytes(pending[:LENGTH_BYTES], "big")
                if len(pending) < size:
                    return
                command = decode_frame(bytes(pending[:size]))
                del pending[:size]
                if command.code == RequestCode.PULL_MESSAGE and not command.is_response:
                    pull = PullMessageRequest.from_ext(command.ext)
                    note(pull.topic, pull.consumer_group, pull.queue_id)

        return seen

    return opened
