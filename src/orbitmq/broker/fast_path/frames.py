# cython: annotation_typing=False
"""The fast path: a received chunk of many frames in, records and responses out, in one call.

Plain sends (single and batch) and plain pulls that find messages are done here completely: the header is
scanned, the record built in the store's write batch, the response encoded. Whatever is not plain (a delay, a
transaction, an unknown topic, nothing to pull, anything odd in the frame) is left to the ordinary handlers,
in order: :meth:`FastFrames.feed` stops at that frame. The fast path never answers with an error itself.

Typed in ``frames.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. While it works
it touches no Python object: topics and permitted pulls are rows of integer tables, updated from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.broker.fast_path.fields import Fields
from orbitmq.broker.fast_path.keys import FrameKeys
from orbitmq.broker.fast_path.names import NameTable
from orbitmq.broker.fast_path.pulls import Pulls
from orbitmq.broker.fast_path.responses import Responses
from orbitmq.broker.fast_path.sends import Sends
from orbitmq.wire import frame, scan
from orbitmq.wire.scan import HeaderScan

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.layout import Texts
    from orbitmq.runtime.buffers import Readable
    from orbitmq.store.log.appender import Appender
    from orbitmq.store.queues.lookup import Lookup

if not cython.compiled:
    from orbitmq.wire.scan import frame_border

# C integers in the compiled module, so that no Python object is touched on the path of a message.
DONE = layout.DONE
ORDINARY = layout.ORDINARY
IN_PLACE = layout.IN_PLACE
HANDLED = layout.HANDLED
LEFT_NOW = layout.LEFT_NOW
LEFT_LATER = layout.LEFT_LATER
LEFT_COMMITS = layout.LEFT_COMMITS
LEFT_RECORDS = layout.LEFT_RECORDS
SCAN_OK = 0

SEND_MESSAGE = 10
PULL_MESSAGE = 11
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320
LITE_PULL_MESSAGE = 361

MAX_FRAME_BYTES = frame.MAX_FRAME_BYTES
UNFINISHED = scan.UNFINISHED
NOW_BYTES = 1 << 20


class FastFrames:
    """The fast path of one broker, see the module.

    Args:
        appender, lookup: the store's inner loops.
        texts: constant parts of responses and properties.
        max_body_bytes: larger bodies are left to the ordinary handler, which refuses them.
        max_pull_count: most messages in one pull response; ``max_pull_bytes`` likewise.
        requires_keys: whether the broker requires keys.

    Attributes:
        sends, pulls: the two halves, with their results for the caller.
        topics, pulls.permitted: the topics that may be sent to, and each (group, topic) that may pull; the
            caller fills them between calls.
        keys: decides about each frame, when the broker requires keys.
        now, later: responses that may go out, and those that wait for the log.
        lite_pull: whether the lite pull is answered too.
        reason, frame_end, left: results of the last :meth:`feed`.
    """

    def __init__(
        self,
        appender: Appender,
        lookup: Lookup,
        texts: Texts,
        *,
        max_body_bytes: int,
        max_pull_count: int,
        max_pull_bytes: int,
        requires_keys: bool,
    ) -> None:
        self.scan = HeaderScan()
        fields = Fields(self.scan)
        self.keys = FrameKeys(fields, requires_keys)
        self.topics = NameTable(layout.T_WIDTH)
        self.now = Responses(texts, NOW_BYTES)
        self.sends = Sends(
            appender,
            fields,
            self.keys,
            self.topics,
            texts,
            self.now,
            max_body_bytes=max_body_bytes,
        )
        self.later = self.sends.later
        # Permitted pulls of a topic that may no longer be pulled here point to this row, which has no queues.
        self.topics.put(b"", [0, 0, 0])
        self.pulls = Pulls(
            appender,
            lookup,
            fields,
            self.keys,
            self.topics,
            self.now,
            max_count=max_pull_count,
            max_bytes=max_pull_bytes,
        )
        self.lite_pull = False
        self.reason = DONE
        self.frame_end = 0
        self.left = 0

    def set_unique_ids(self, prefix: bytes, start_ms: int) -> None:
        """See ``Properties.set_unique_ids``."""
        self.sends.props.set_unique_ids(prefix, start_ms)

    # -- the call of every chunk -----------------------------------------------------------------------

    def feed(self, buffer: Readable, start: int, end: int, born: Readable) -> int:
        """Work on whole frames from ``start``; returns the position behind the last one that was handled.

        :attr:`reason` is why it stopped: DONE (only an unfinished frame is left), ORDINARY (the frame up to
        :attr:`frame_end` is for the ordinary handlers), NEED_ROOM (see ``Sends.need_code``),
        DRAIN (take the outputs), NEED_INDEX (see ``Pulls.need_slot``), PARK (the frame is a pull that waits,
        see ``Pulls.park_row``), IN_PLACE (the body of the last answer in ``now`` is in ``Lookup.spans``).
        :attr:`left` has the results that wait to be taken, as bits: ``layout.LEFT_NOW`` and so on.

        Raises:
            ValueError: positions outside of ``buffer``, or ``born`` is no address of a record.
        """
        if start < 0 or start > end or end > len(buffer) or len(born) not in (8, 20):
            raise ValueError(f"{start} to {end} of {len(buffer)} bytes, from an address of {len(born)} bytes")
        if start == end:
            self.reason = DONE
            self.left = 0
            return start
        if cython.compiled:
            # A typed memory view of a chunk would cost as much as scanning a request.
            address = cython.cast(bytes_in, born)
            born_length = len(born)
            PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
            if self.keys.signed:
                # The check of a signature needs the interpreter's lock, which is kept for the whole chunk.
                self.keys.chunk = buffer
                start = self._run(cython.cast(bytes_in, view.buf), start, end, address, born_length)
                self.keys.chunk = b""
            else:
                with cython.nogil:
                    start = self._run(cython.cast(bytes_in, view.buf), start, end, address, born_length)
            PyBuffer_Release(cython.address(view))
        else:
            self.keys.chunk = buffer
            start = self._run(buffer, start, end, born, len(born))
            self.keys.chunk = b""
        self.left = self._left()
        return start

    def _left(self) -> int:
        left = 0
        if self.now.used > 0:
            left |= LEFT_NOW
        if self.later.used > 0:
            left |= LEFT_LATER
        if self.pulls.notes.commits or self.pulls.notes.full():
            left |= LEFT_COMMITS
        if self.sends.a.batch_used > 0:
            left |= LEFT_RECORDS
        return left

    def _run(self, buf: Readable, pos: int, end: int, born: Readable, born_length: int) -> int:
        while True:
            stop = frame_border(buf, pos, end, MAX_FRAME_BYTES)
            if stop < 0:
                # Bytes that are no frame are left to the ordinary decoder, which reports the error.
                self.frame_end = end
                self.reason = DONE if stop == UNFINISHED else ORDINARY
                return pos
            self.frame_end = stop
            reason = self._frame(buf, pos + 4, stop, born, born_length)
            if reason != HANDLED:
                self.reason = reason
                return stop if reason == IN_PLACE else pos
            pos = stop

    def _frame(self, buf: Readable, pos: int, end: int, born: Readable, born_length: int) -> int:
        if self.scan.scan(buf, pos, end) != SCAN_OK or self.scan.flag & 1:
            return ORDINARY
        code = self.scan.code
        if code in (SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_MESSAGE):
            return self.sends.send(buf, end, born, born_length, code)
        if code == PULL_MESSAGE or (code == LITE_PULL_MESSAGE and self.lite_pull):
            return self.pulls.pull(buf, end)
        return ORDINARY
