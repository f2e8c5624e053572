"""The contents that two brokers seal for each other."""

from __future__ import annotations

import pytest

from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.sealing import FOLLOWER, MASTER, Sealing
from orbitmq.replication.link.stream import FrameKind
from orbitmq.wire.signing import Secret

STATE = FrameKind.STATE
TABLES = b"all users and their secrets"


def sides(secret: str = "inner-secret-1", numbers: tuple[str, str] = ("1", "2")) -> tuple[Sealing, Sealing]:
    return Sealing(Secret(secret), MASTER, *numbers), Sealing(secret, FOLLOWER, *numbers)


@pytest.mark.behaviour("AU-37")
def test_each_side_opens_what_the_other_seals_in_its_order() -> None:
    master, follower = sides()
    sent = [master.seal(STATE, TABLES) for _ in range(3)]
    assert len(set(sent)) == 3
    assert all(TABLES not in each for each in sent)
    assert follower.seal(STATE, TABLES) not in sent
    assert [follower.open(STATE, each) for each in sent] == [TABLES] * 3
    # Other frames are not sealed.
    assert follower.open(FrameKind.STATE_ACK, master.seal(FrameKind.STATE_ACK, b"ack")) == b"ack"


@pytest.mark.behaviour("AU-37")
@pytest.mark.parametrize("what", ["changed", "again", "left out", "sent back", "clear", "nothing"])
def test_what_others_do_to_a_frame_is_noticed(what: str) -> None:
    master, follower = sides()
    first, second = master.seal(STATE, TABLES), master.seal(STATE, TABLES)
    opens = follower
    if what == "again":
        follower.open(STATE, first)
    frame = {
        "changed": first[:-1] + bytes([first[-1] ^ 1]),
        "again": first,
        "left out": second,
        "sent back": first,
        "clear": TABLES,
        "nothing": b"",
    }[what]
    if what == "sent back":
        opens = master
    with pytest.raises(LinkError, match="is not sealed with the keys of this link"):
        opens.open(STATE, frame)


@pytest.mark.behaviour("AU-37")
def test_a_key_is_of_one_link_and_one_secret() -> None:
    master, _ = sides()
    sealed = master.seal(STATE, TABLES)
    for secret, numbers in (
        ("inner-secret-2", ("1", "2")),
        ("inner-secret-1", ("1", "3")),
        ("inner-secret-1", ("2", "1")),
    ):
        with pytest.raises(LinkError):
            sides(secret, numbers)[1].open(STATE, sealed)
