"""The parts that send tables: terms, frames, inbox and outbox."""

from __future__ import annotations

from functools import partial

import pytest
from tests.unit.replication_pair import Pair, Side, connect, cut
from tests.unit.test_broker_change_feed import Tables

from orbitmq.broker.change_feed import ACLS, ACTED, OFFSETS, TOPICS, USERS, ChangeFeed, FedTable, FeedEntry
from orbitmq.broker.events import Events
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.role import Role
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.state.acted_tables import ActedTables
from orbitmq.replication.state.acting_term import ActingTerm
from orbitmq.replication.state.frames import Ack, Changes, decode_ack, decode_state, encode
from orbitmq.replication.state.inbox import MAX_WAITING, Complete, Inbox
from orbitmq.replication.state.outbox import FRAME_BYTES, MAX_ENTRIES, Outbox, SendingLink, everything
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.topic import DataVersion


def entry(log_offset: int, key: str = "k", value: int | None = 1, table: str = OFFSETS) -> FeedEntry:
    return FeedEntry(1, log_offset, table, key, value)


@pytest.mark.behaviour("PO-32")
def test_the_last_term_in_which_a_slave_acted_is_kept_until_its_master_is_told() -> None:
    """Seed 4593: the term has to survive a kill, a second acting, and a start as a slave."""
    feed, written = ChangeFeed(), []
    feed.subscribe(lambda table, key, _value: written.append((table, key)))
    acted = ActingTerm(feed)
    acted.begins(2)
    acted.begins(3)
    assert acted.term == 3
    assert set(written) == {(ACTED, "term")}, "the journal of who acts brings it to the disk"
    again = ActingTerm(ChangeFeed())
    again.restore(fastjson.loads("".join(acted.file_text())))
    assert again.term == 3
    journalled = ChangeFeed()
    from_journal = ActingTerm(journalled)
    journalled.apply(feed.entry(1, ACTED, "term", acted.term))
    assert from_journal.term == 3
    acted.note_master_synced()
    acted.note_master_synced()
    assert acted.term == 0
    assert len(written) == 3
    again.restore(fastjson.loads("".join(acted.file_text())))
    assert again.term == 0


@pytest.mark.behaviour("PO-32")
async def test_that_a_slave_acted_outlives_two_kills(runtime: SimulatedRuntime) -> None:
    """After the first start only the journal holds the term, and the first write of the tables drops the
    journal.
    """
    for acts in (True, False, False):
        feed = ChangeFeed()
        acted = ActingTerm(feed)
        persistence = Persistence(runtime, "/store/config", feed, Events())
        persistence.register(ACTED, acted)
        persistence.load()
        if acts:
            acted.begins(3)
            await persistence.flush(ACTED)
        else:
            assert acted.term == 3
            assert await persistence.fold()


class Users:
    """The users and rules of a broker, in the simplest form."""

    def __init__(self, feed: ChangeFeed) -> None:
        self.feed = feed
        self.found: dict[tuple[str, str], str] = {}
        for table in (USERS, ACLS):
            feed.register(table, FedTable(str, partial(self.put, table), items=partial(self._items, table)))

    def put(self, table: str, key: str, value: str | None) -> None:
        if value is None:
            self.found.pop((table, key), None)
        else:
            self.found[table, key] = value
        self.feed.changed(table, key, value)

    def _items(self, wanted: str) -> list[tuple[str, str]]:
        return [(key, value) for (table, key), value in self.found.items() if table == wanted]


@pytest.mark.behaviour("AU-37")
async def test_users_go_over_sealed_links_only(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = Users(pair.master.tables.feed), Users(pair.slave.tables.feed)
        here.put(USERS, "app", "of the master")
        here.put(ACLS, "app", "rules")
        there.put(USERS, "own", "of the slave")
        there.put(ACLS, "own", "rules")
        links = connect(pair.master, pair.slave)
        await pair.sleep(0.2)
        here.put(USERS, "later", "of the master")
        await pair.sleep(0.2)
        assert list(there.found) == [(USERS, "own"), (ACLS, "own")]
        # A false master sends some, and claims that they are all.
        forged = [FeedEntry(9, 0, table, "evil", "forged") for table in (USERS, ACLS)]
        pair.slave.peers.received(
            links[1], FrameKind.STATE, encode(Changes(3, 0, 99, forged, begins=True, ends=True))
        )
        await pair.sleep(0.2)
        assert list(there.found) == [(USERS, "own"), (ACLS, "own")]
        cut(*links)
        connect(pair.master, pair.slave, sealed=True)
        await pair.sleep(0.2)
        assert there.found == here.found
        here.put(USERS, "app", None)
        await pair.sleep(0.2)
        assert sorted(there.found) == [(ACLS, "app"), (USERS, "later")]


def test_an_acting_slave_tells_other_slaves_no_users(runtime: SimulatedRuntime) -> None:
    """This way goes by a request, which is not sealed."""
    side = Side(runtime, Role.SLAVE)
    Users(side.tables.feed).put(USERS, "app", "secret-of-app-1")
    side.tables.offsets.commit("g", "T", 0, 5)
    side.exchange.acted.begins(3)
    told = ActedTables(side.tables.feed, side.exchange, side.exchange.acted).acted()
    assert b"T@g@0" in told
    assert b"secret-of-app-1" not in told


def test_that_a_slave_acted_is_not_told_as_a_table() -> None:
    """Its master would take the term for its own."""
    feed = ChangeFeed()
    ActingTerm(feed).begins(3)
    assert list(everything(feed)) == []


def test_frames_tell_in_which_term_their_sender_acted_first() -> None:
    """The first frame of a response has it, also when the entries need several frames."""
    entries = [FeedEntry(1, 0, OFFSETS, str(at), at) for at in range(2 * MAX_ENTRIES)]
    payloads = SendingLink(sealed=False).frames(5, 9, entries, begins=True, ends=True, asked=True, acted_in=3)
    first = next(frame for frame in map(decode_state, payloads) if isinstance(frame, Changes))
    assert (first.begins, first.term, first.acted_in) == (True, 5, 3)


def test_only_the_last_change_of_a_key_is_told() -> None:
    tables = Tables(VirtualClock())
    outbox = Outbox(tables.feed)
    tables.feed.subscribe(outbox.note)
    tables.offsets.commit("g", "T", 0, 1)
    tables.offsets.commit("g", "T", 1, 1)
    tables.offsets.commit("g", "T", 0, 2)
    told = outbox.take()
    assert [(each.key, each.value) for each in told] == [("T@g@1", 1), ("T@g@0", 2)]
    assert {each.sequence for each in told} == {3}
    assert len(outbox) == 0


def test_a_missing_frame_is_noticed() -> None:
    inbox = Inbox()
    inbox.take(Changes(1, 0, 1, []), lambda _: True)
    with pytest.raises(LinkError):
        inbox.take(Changes(3, 0, 1, []), lambda _: True)


def test_changes_are_given_out_in_order_once_and_acknowledged_then() -> None:
    inbox = Inbox()
    inbox.take(Changes(1, 0, 5, [entry(10, "a"), entry(20, "b")]), lambda _: True)
    assert inbox.ready(9) == []
    assert [each.key for each in inbox.ready(10) if isinstance(each, FeedEntry)] == ["a"]
    assert inbox.applied == 0
    assert [each.key for each in inbox.ready(30) if isinstance(each, FeedEntry)] == ["b"]
    assert inbox.applied == 0
    inbox.made()
    assert inbox.applied == 5
    assert inbox.ready(99) == []


def test_all_that_a_table_holds_includes_what_changed_meanwhile() -> None:
    inbox = Inbox()
    frames = [
        Changes(1, 0, 1, [entry(0, "before")]),
        Changes(2, 0, 2, [entry(0, "a")], begins=True),
        Changes(3, 0, 3, [entry(0, "changed")]),
        Changes(4, 0, 4, [entry(0, "T", table=TOPICS)], ends=True),
    ]
    for frame in frames:
        inbox.take(frame, lambda _: True)
    [complete] = [each for each in inbox.ready(0) if isinstance(each, Complete)]
    assert complete == Complete({OFFSETS: {"a", "changed"}, TOPICS: {"T"}}, asked=False)


def test_so_many_changes_wait_for_the_log_and_no_more() -> None:
    inbox = Inbox()
    for number in range(MAX_WAITING // 1000 + 1):
        many = [entry(1, str(at)) for at in range(1000)]
        inbox.take(Changes(number + 1, 0, number, many), lambda _: True)
    assert len(inbox.ready(0)) >= 1000
    assert len(inbox) <= MAX_WAITING


def test_acknowledgements_of_what_was_not_sent_are_refused() -> None:
    sending = SendingLink(sealed=False)
    assert not sending.acknowledged(Ack(1, 0))
    assert len(list(sending.frames(0, 7, []))) == 1
    assert not sending.acknowledged(Ack(1, 8))
    assert sending.acknowledged(Ack(1, 7))
    assert not sending.acknowledged(Ack(0, 7))


def test_frames_have_a_limit_of_entries_and_of_bytes() -> None:
    sending = SendingLink(sealed=False)
    entries = [FeedEntry(1, 0, TOPICS, str(at), "x" * 10_000) for at in range(400)]
    entries += [FeedEntry(1, 0, OFFSETS, str(at), at) for at in range(2000)]
    payloads = list(sending.frames(3, 9, entries, begins=True, ends=True))
    frames = [decode_state(payload) for payload in payloads]
    assert max(map(len, payloads)) <= FRAME_BYTES
    told = [frame for frame in frames if isinstance(frame, Changes)]
    assert max(len(frame.entries) for frame in told) <= MAX_ENTRIES
    assert [each for frame in told for each in frame.entries] == entries
    assert [frame.number for frame in told] == list(range(1, len(told) + 1))
    assert [frame.begins for frame in told].count(True) == 1
    assert told[0].begins
    assert told[-1].ends
    assert [frame.ends for frame in told].count(True) == 1
    assert [frame.sequence for frame in told] == [0] * (len(told) - 1) + [9]


@pytest.mark.parametrize("payload", [b"", b"\xc1", encode(Ack(1, 2)), b"\x00" * 10])
def test_garbage_is_no_frame(payload: bytes) -> None:
    with pytest.raises(LinkError):
        decode_state(payload)
    if payload != encode(Ack(1, 2)):
        with pytest.raises(LinkError):
            decode_ack(payload)


def test_versions_compare_by_state_first() -> None:
    assert DataVersion(2, 0, 0).is_newer_than(DataVersion(1, 9, 9))
