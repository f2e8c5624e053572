# cython: annotation_typing=False
"""Decides who may use the fast path of a broker that requires keys: callers that have passed the gate before.

A :class:`SignedCaller` has a byte for each topic and each (group, topic) that its user may use. The gate
checks the caller's first request for each of them; the byte is set when that request passes. A request
without its byte, of another user, or with a wrong signature is left to the handlers, and so to the gate.

Typed in ``keys.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from binascii import b2a_base64
from hmac import compare_digest
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.wire.signing import Secret, SigningKey

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.fields import Fields
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import copy, same
    from orbitmq.wire.scan import unescape

ACCESS_KEY = layout.COMMON_FIELDS["AccessKey"]
SIGNATURE = layout.COMMON_FIELDS["Signature"]
ZONE_NAME = layout.COMMON_FIELDS["__ZONE_NAME"]
ZONE_MODE = layout.COMMON_FIELDS["__ZONE_MODE"]

PULL = layout.SIGNED_PULL
# The most signed fields of one request. Clients add the two fields of a zone after they have signed.
SIGNED = layout.MAX_SLOTS - 3
# Longer headers are left to the handlers.
CONTENT_BYTES = 64 * 1024


class SignedCaller:
    """A user at one address, and what the gate has let the user do from there.

    Args:
        name: the user's name.
        key: checks the user's signatures.

    Attributes:
        is_open: False from the first change of the user or its rules on, for good.
    """

    def __init__(self, name: str, key: SigningKey) -> None:
        self.name = name
        self.key = key
        self.text = name.encode()
        self.sends = bytearray(1)
        self.pulls = bytearray(1)
        self.is_open = True

    def allow_send(self, row: int) -> int:
        """Let the caller send to the topic in this row from now on; returns the bytes that this takes."""
        more = _more(self.sends, row)
        if more:
            self.sends = bytearray(self.sends) + bytes(more)
        self.sends[row] = 1
        return more

    def allow_pull(self, row: int) -> int:
        """Let the caller pull for the group and topic in this row of the permitted pulls from now on; returns
        the bytes that this takes."""
        more = _more(self.pulls, row)
        if more:
            self.pulls = bytearray(self.pulls) + bytes(more)
        self.pulls[row] = 1
        return more


def _more(rights: Readable, row: int) -> int:
    """How many bytes the array of rights must grow by for a row: at least to twice its size."""
    return 0 if row < len(rights) else max(row + 1, 2 * len(rights)) - len(rights)


NOBODY = SignedCaller("nobody", SigningKey(Secret("")))
NOBODY.is_open = False


class FrameKeys:
    """Decides for each frame whether its caller may send or pull on the fast path.

    Args:
        fields: the fields of the current request.
        requires_keys: whether the broker requires keys; everything else is used only then.

    Attributes:
        caller: the caller of the current chunk's requests; NOBODY: they all go to the gate.
        signed: whether the signature of each request is checked; otherwise only that of a connection's first.
        certified: whether the caller is the user of the client's certificate: then requests without keys are
            the caller's.
        chunk: the buffer with the frames, while signatures are checked.
    """

    def __init__(self, fields: Fields, requires_keys: bool) -> None:
        self.fields = fields
        self.scan = self.fields.scan
        self.slots = self.fields.slots
        self.requires_keys = requires_keys
        self.caller = NOBODY
        self.signed = False
        self.certified = False
        self.chunk: Readable = b""
        self.data = bytearray(CONTENT_BYTES)
        self.view = self.data
        self.content = memoryview(self.data)
        order = array("q")
        for names in (layout.SEND_FIELDS, layout.SEND_V2_FIELDS, layout.PULL_FIELDS):
            order.extend(
                names[name]
                for name in sorted(names)
                if name not in ("Signature", "__ZONE_NAME", "__ZONE_MODE")
            )
        self.order = order

    def let_send(self, buf: Readable, end: int, row: int, kind: int) -> bool:
        """Whether the caller made the request, and may send to the topic in this row."""
        if row >= len(self.caller.sends) or not self.caller.sends[row]:
            return False
        return self._is_made(buf, end, kind)

    def let_pull(self, buf: Readable, end: int, row: int) -> bool:
        """Whether the caller made the request, and may use the group and topic in this row."""
        if row >= len(self.caller.pulls) or not self.caller.pulls[row]:
            return False
        return self._is_made(buf, end, PULL)

    def _is_made(self, buf: Readable, end: int, kind: int) -> bool:
        """Whether the caller made the request, by certificate or by keys."""
        if not self.caller.is_open:
            return False
        if self.certified and self.slots[ACCESS_KEY] < 0 and self.slots[SIGNATURE] < 0:
            return True
        return self._names_caller(buf) and (not self.signed or self._is_signed(buf, end, kind))

    def _names_caller(self, buf: Readable) -> bool:
        i = self.slots[ACCESS_KEY]
        if i < 0 or self.slots[SIGNATURE] < 0 or self.scan.lengths[i] != len(self.caller.text):
            return False
        if cython.compiled:
            text = cython.address(self.caller.text[0])
        else:
            text = self.caller.text
        return same(buf, self.scan.starts[i], text, 0, self.scan.lengths[i])

    def _is_signed(self, buf: Readable, end: int, kind: int) -> bool:
        """Whether the signature is the caller's."""
        if cython.compiled:
            out = cython.address(self.view[0])
        else:
            out = self.data
        used = 0
        count = 1  # the signature itself
        for n in range(kind * SIGNED, (kind + 1) * SIGNED):
            i = self.slots[self.order[n]]
            if i < 0:
                continue
            count += 1
            length = self.scan.lengths[i]
            if used + length > CONTENT_BYTES:
                return False
            if self.scan.escaped[i]:
                length = unescape(buf, self.scan.starts[i], length, out, used, length)
                if length < 0:
                    return False
            else:
                copy(out, used, buf, self.scan.starts[i], length)
            used += length
        if self.slots[ZONE_NAME] >= 0:
            count += 1
        if self.slots[ZONE_MODE] >= 0:
            count += 1
        # Of a field that occurs twice one is signed, and the decoder decides which: the handlers take it.
        if count != self.scan.count:
            return False
        i = self.slots[SIGNATURE]
        return self._made(used, self.scan.body_start, end, self.scan.starts[i], self.scan.lengths[i])

    def _made(self, used: int, body: int, end: int, at: int, length: int) -> bool:
        """Whether the signature at this place is that of the content and the body."""
        digest = self.caller.key.digest(self.content[:used], self.chunk[body:end])
        return compare_digest(b2a_base64(digest, newline=False), self.chunk[at : at + length])
