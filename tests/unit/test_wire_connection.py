"""The connection without I/O: cuts, borders, the hook, requests and their deadlines."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire import connection as wire
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.connection import (
    OWN_BUFFER_FROM_BYTES,
    RECEIVE_BUFFER_BYTES,
    Opaques,
    RemotingConnection,
)
from orbitmq.wire.errors import FrameError, HeaderError, RemotingError
from orbitmq.wire.frame import MAX_FRAME_BYTES, encode_frame
from orbitmq.wire.scan import IMPOSSIBLE, UNFINISHED, border_in

SHARED = memoryview(bytearray(64 * 1024))


def connection(**options: object) -> RemotingConnection[str]:
    return RemotingConnection(Opaques(), SHARED, **options)  # type: ignore[arg-type]


def feed(one: RemotingConnection[str], data: bytes) -> list[Command]:
    """Receive ``data`` as a driver does, with reads as long as the buffer."""
    found = []
    while data:
        room = one.room()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        command = one.receive(len(piece))
        while command is not None:
            found.append(command)
            command = one.next_command()
    return found


bodies = st.sampled_from([0, 1, 100, OWN_BUFFER_FROM_BYTES - 40, OWN_BUFFER_FROM_BYTES, 200_000])


@given(st.lists(bodies, max_size=5), st.data())
def test_the_cuts_of_a_stream_do_not_matter_and_others_share_the_buffer(
    sizes: list[int], data: st.DataObject
) -> None:
    sent = [Command(code, opaque=code, body=bytes(size)) for code, size in enumerate(sizes)]
    stream = b"".join(encode_frame(command) for command in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    one, other = connection(), connection()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += feed(one, stream[start:end])
        assert feed(other, encode_frame(Command(9, body=b"\xff" * 3000))[:-1]) == []
        other = connection()
    assert received == sent


@pytest.mark.behaviour("LM-11")
def test_a_frame_that_comes_byte_by_byte_is_looked_at_when_it_may_be_whole() -> None:
    asked: list[int] = []

    def hook(_owner: object, _buffer: memoryview, start: int, end: int) -> int:
        asked.append(end - start)
        return start

    one = connection(hook=hook)
    frame = encode_frame(Command(7, opaque=3, body=b"body"))
    found = [command for at in range(len(frame)) for command in feed(one, frame[at : at + 1])]
    assert [command.body for command in found] == [b"body"]
    # The hook runs with the first byte, with the fourth, which completes the length, and with the last.
    assert asked == [1, 4, len(frame)]
    assert feed(one, frame + frame[:2])[0].body == b"body"
    assert feed(one, frame[2:])[0].body == b"body"


def test_a_long_frame_is_taken_with_its_body_where_it_was_collected() -> None:
    body = bytes(range(256)) * 1000
    made: list[bytearray] = []

    def allocate(size: int) -> bytearray:
        made.append(bytearray(size))
        return made[-1]

    one = connection(allocate=allocate)
    frame = encode_frame(Command(7, opaque=3, body=body))
    first = len(frame) - 5
    assert feed(one, frame[:first]) == []
    assert one.receive_long(4) is None
    one.room()[:5] = frame[first:]
    taken = one.receive_long(5)
    assert taken is not None
    command, view = taken
    assert (command.code, command.opaque, command.body) == (7, 3, b"")
    assert view == body
    assert view.obj is made[0]
    assert [c.body for c in feed(one, encode_frame(Command(8, body=b"short")))] == [b"short"]
    assert view == body


def test_the_hook_takes_whole_frames_and_what_it_leaves_comes_out_in_order() -> None:
    seen: list[tuple[object, list[int]]] = []
    order: list[tuple[str, int]] = []

    def hook(owner: object, buffer: memoryview, start: int, end: int) -> int:
        codes = []
        while (stop := border_in(buffer, start, end, MAX_FRAME_BYTES)) >= 0:
            code = int(bytes(buffer[start:stop]).split(b'"code":')[1].split(b",")[0])
            if code % 3 == 0:
                break
            codes.append(code)
            order.append(("hook", code))
            start = stop
        seen.append((owner, codes))
        return start

    one = connection(hook=hook, owner="owner")
    frames = b"".join(encode_frame(Command(code)) for code in range(1, 8))
    room = one.room()
    room[: len(frames) + 3] = frames + b"\0\0\0"
    command = one.receive(len(frames) + 3)
    while command is not None:
        order.append(("command", command.code))
        command = one.next_command()
    assert [code for _, code in order] == list(range(1, 8))
    assert [code for kind, code in order if kind == "command"] == [3, 6]
    assert seen == [("owner", [1, 2]), ("owner", [4, 5]), ("owner", [7])]
    # The three kept bytes begin the next frame, which the hook sees from its border.
    rest = encode_frame(Command(8))
    assert rest[:3] == b"\0\0\0"
    assert feed(one, rest[3:]) == []
    assert seen[-1] == ("owner", [8])


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"\x16\x03\x01\x02", "it starts a TLS handshake"),
        (b"PROXY TCP4", "it sends a PROXY protocol header"),
        (b"\r\n\r\n\x00\r\nQUIT", "it sends a PROXY protocol header"),
        (b"GET / HTTP", "impossible frame length"),
        (struct.pack(">i", 3), "impossible frame length"),
        (struct.pack(">i", -1), "impossible frame length"),
        (struct.pack(">i", MAX_FRAME_BYTES - 3), "impossible frame length"),
        (struct.pack(">ii", 12, 8) + b"not json", "unreadable frame"),
    ],
)
def test_garbage_is_named_by_its_kind(first: bytes, kind: str) -> None:
    with pytest.raises(FrameError) as caught:
        feed(connection(), first)
    assert caught.value.kind == kind


def test_what_looks_like_tls_behind_a_good_frame_is_a_bad_length() -> None:
    one = connection()
    assert len(feed(one, encode_frame(Command(1)))) == 1
    with pytest.raises(FrameError, match="frame of 369295618 bytes"):
        feed(one, b"\x16\x03\x01\x02")


def test_answers_find_their_requests() -> None:
    one = connection()
    first, second = Command(1), Command(2)
    for command, name, deadline in ((first, "first", 2.0), (second, "second", 1.0)):
        one.expect(one.number(command), name, deadline)
    assert (one.waiting, one.next_deadline()) == (2, 1.0)
    assert one.answered(Command(0, opaque=first.opaque)) == "first"
    assert one.answered(Command(0, opaque=first.opaque)) is None
    assert one.expired(0.9) == []
    assert one.expired(1.0) == [(second.opaque, "second")]
    assert (one.waiting, one.next_deadline()) == (0, wire.NEVER)
    one.expect(one.number(first), "first")
    one.expect(one.number(second), "second")
    one.forget(first.opaque)
    assert one.abandoned() == ["second"]
    assert one.abandoned() == []


def test_numbers_are_one_series_and_stay_positive() -> None:
    opaques = Opaques()
    one, other = RemotingConnection[str](opaques, SHARED), RemotingConnection[str](opaques, SHARED)
    assert [one.number(Command(1)), other.number(Command(1)), one.number(Command(1))] == [1, 2, 3]
    opaques._last = 2**31 - 2
    assert [one.number(Command(1)), one.number(Command(1))] == [2**31 - 1, 0]


def test_answers_of_this_side() -> None:
    request = Command(12, opaque=7)
    for answer, code in (
        (wire.not_supported(request), ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        (wire.too_busy(request), ResponseCode.SYSTEM_BUSY),
        (wire.failed(request, RemotingError(ResponseCode.NO_PERMISSION, "no")), ResponseCode.NO_PERMISSION),
        (wire.failed(request, HeaderError("topic is missing")), ResponseCode.SYSTEM_ERROR),
    ):
        sent = wire.answer_to(request, answer)
        assert sent is answer
        assert (sent.code, sent.opaque, sent.is_response) == (code, 7, True)
    assert wire.answer_to(Command(12, flag=FLAG_ONEWAY), Command(0)) is None


@given(st.binary(max_size=20), st.integers(0, 24), st.integers(4, 30))
def test_one_rule_for_borders(data: bytes, start: int, maximum: int) -> None:
    if start > len(data):
        with pytest.raises(ValueError, match="bytes"):
            border_in(data, start, len(data) + 5, maximum)
        return
    found = border_in(data, start, len(data), maximum)
    if len(data) - start < 4:
        assert found == UNFINISHED
        return
    content = int.from_bytes(data[start : start + 4], "big", signed=True)
    if content < 4 or content + 4 > maximum:
        assert found == IMPOSSIBLE
    elif start + 4 + content > len(data):
        assert found == UNFINISHED
    else:
        assert found == start + 4 + content


def test_a_batch_of_256_kib_is_worked_on_where_it_was_received() -> None:
    shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    seen: list[tuple[memoryview, int, int]] = []

    def hook(_owner: object, buffer: memoryview, start: int, end: int) -> int:
        seen.append((buffer, start, end))
        return end

    one: RemotingConnection[str] = RemotingConnection(Opaques(), shared, hook=hook)
    frame = encode_frame(Command(320, ext={"i": "p" * 2000}, body=bytes(256 << 10)))
    for _ in range(2):
        one.room()[: len(frame)] = frame
        assert one.receive(len(frame)) is None
    assert seen == [(shared, 0, len(frame))] * 2


@pytest.mark.behaviour("LM-08")
@given(st.integers(0, 300_000), st.lists(st.integers(1, 100_000), max_size=5), st.booleans())
def test_a_restrained_connection_takes_long_frames_only_if_their_header_allows_it(
    size: int, cuts: list[int], known: bool
) -> None:
    one = connection()
    asked = []

    def knows(command: Command) -> bool:
        asked.append(command.ext["user"])
        return known

    one.restrain(knows)
    command = Command(7, {"user": "app"}, body=b"x" * size)
    frame = encode_frame(command)
    pieces, rest = [], frame
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    is_long = len(frame) > wire.STRANGERS_FRAME_BYTES

    def received() -> list[Command]:
        return [command for piece in [*pieces, rest] for command in feed(one, piece)]

    if is_long and not known:
        with pytest.raises(FrameError, match="whose keys are not known"):
            received()
    else:
        found = received()
        assert [each.body for each in found] == [command.body]
        one.restrain(None)
        assert len(feed(one, encode_frame(Command(7, {}, bytes(200_000))))) == 1
    assert set(asked) == ({"app"} if is_long else set())


@pytest.mark.behaviour("LM-08")
def test_a_header_that_does_not_come_is_not_waited_for_beyond_the_limit() -> None:
    one = connection()
    one.restrain(lambda command: True)
    # The header claims a length of 200 KB.
    head = struct.pack(">ii", 1_000_000, 200_000)
    assert feed(one, head + bytes(60_000)) == []
    with pytest.raises(FrameError, match="whose keys are not known"):
        feed(one, bytes(60_000))
