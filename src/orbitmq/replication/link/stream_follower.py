"""A follower's end of a link to a broker of OrbitMQ: agrees on the last common record, then follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.link import stream
from orbitmq.replication.link.agreement import Agreement, Block, BlockAnswer
from orbitmq.replication.link.errors import LinkError, OwnEndCountsError
from orbitmq.replication.link.follower_link import FollowerLink
from orbitmq.replication.link.hello import BLOCK_BYTES, Hello, Mark, mark
from orbitmq.replication.link.identity import BrokerIdentity
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.proof import Keyring, is_proof, proof
from orbitmq.replication.link.record_boundaries import RecordBoundaries
from orbitmq.replication.link.sealing import FOLLOWER, MASTER, Sealing
from orbitmq.replication.link.stream import FrameKind, StreamReader
from orbitmq.replication.link.tail_truncation import TailTruncation
from orbitmq.runtime.seam import Clock
from orbitmq.store.ports import CopiedLog

log = logging.getLogger(__name__)

# How long an acknowledgement is delayed if no sender waits for it, so that one covers many pieces.
ACK_SECONDS = 0.01
# The role of a returning master that has not taken over the acting master's tables and end of the log yet.
_CATCHING_UP = Role.PRE_ONLINE.value


@dataclass(frozen=True, slots=True)
class Ours:
    """The parts that all links of this broker as a follower share."""

    peers: Peers
    identity: BrokerIdentity
    truncation: TailTruncation
    boundaries: RecordBoundaries
    keys: Keyring


class StreamFollowerLink(FollowerLink):
    """A link to a master that is a broker of OrbitMQ.

    Attributes:
        hello: the master's last greeting.
    """

    is_master = True
    tells_durable = True

    def __init__(
        self, clock: Clock, config: BrokerConfig, store: CopiedLog, address: str, ours: Ours
    ) -> None:
        super().__init__(clock, config, store, address)
        self._ours = ours
        self._reader = StreamReader(store.config.commit_log_file_bytes)
        self._answer: asyncio.Future[Hello] | None = None
        self._reported = (-1, -1)
        self._later: asyncio.TimerHandle | None = None
        self._sealing: Sealing | None = None
        self.hello: Hello | None = None

    # -- as the other parts of replication see it ------------------------------------------------------

    @property
    def broker_id(self) -> int:
        return self.hello.broker_id if self.hello is not None else -1

    @property
    def sealed(self) -> bool:
        return self._sealing is not None

    def send(self, kind: FrameKind, payload: bytes) -> None:
        if self._transport is None or self._ended.done():
            return
        if self._transport.get_write_buffer_size() > stream.MAX_WAITING_BYTES:
            self.end(LinkError(f"more than {stream.MAX_WAITING_BYTES} bytes wait for it"))
        else:
            sealed = payload if self._sealing is None else self._sealing.seal(kind, payload)
            self._write(stream.frame(kind, sealed))

    # -- the greeting ----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._write(stream.MAGIC)
        await self._prove()
        start = await self._agree()
        own = self._ours.identity.hello()
        self._reader.expected = start
        self._write(structs.replace(own, start=start).encode())
        self._report(self._store.received_offset, self._store.flushed_offset)
        self.transferring = True
        if self.hello is not None:
            self._ours.identity.comparison.compare(self.hello.address, self.hello.alike)
        self._ours.peers.opened(self)

    async def _prove(self) -> None:
        """Prove to the master that this broker has the keys, and check the master's proof.

        Raises:
            LinkError: the master refuses this broker's proof, or gives none although it is required.
        """
        keys = self._ours.keys
        if keys.own is None:
            return
        own = structs.replace(self._ours.identity.hello(), user=keys.own.access_key, number=keys.number())
        master = await self._exchange(own, [])
        number, proven = master.number, False
        if number:
            shown = proof(keys.own.secret_key, FOLLOWER, own, own.number, number)
            master = await self._exchange(structs.replace(own, proof=shown), [])
            proven = is_proof(keys.own.secret_key, MASTER, master, own.number, number)
        if proven and keys.seals and master.seals:
            self._sealing = Sealing(keys.own.secret_key, FOLLOWER, own.number, number)
        if keys.required and not proven:
            raise LinkError(
                f"{master.address} does not prove that it belongs to this cluster: it needs "
                f"authenticationEnabled=true, and {keys.own.access_key} as a super user with the secret of "
                "this broker"
            )

    async def _agree(self) -> int:
        """Set aside this broker's records that the master lacks; returns the place from which it must send
        its log."""
        own, raw = self._ours.identity.hello(), self._store.raw
        if own.begin == own.end:
            return max(own.begin, (await self._exchange(own, [])).begin)
        master, has = own, -1

        async def ask(blocks: Sequence[Block]) -> BlockAnswer:
            nonlocal master, has
            master = await self._exchange(own, [mark(raw.data, *block) for block in blocks])
            has = (
                master.end if has < 0 else has
            )  # the first answer counts: the master's log grows if it copies records from this broker
            return BlockAnswer(master.matched, master.begin, master.end)

        common = await Agreement(own.begin, own.end, own.file_bytes, self._ours.boundaries, ask).find()
        if own.begin < common == has < own.end:
            # A mark at the very end of the master's log shows the master that its log is the beginning of
            # this one.
            await ask([(max(own.begin, common - BLOCK_BYTES), common)])
        if common < own.end and own.keeps_own and own.begin < common:
            raise OwnEndCountsError(
                f"the log of {master.address} differs from that of this broker behind {common}: "
                "this broker's log went on after that"
            )
        if common < own.end and copies_back(master, common, has, own.begin, own.end):
            # Before it serves, the master copies the records that only this broker has, so the logs do not
            # differ.
            raise LinkError(f"{master.address} has yet to copy what this log has from {common} to {own.end}")
        if common < own.end:
            await self._ours.truncation.cut(common, own.end, master.address)
        return max(common, master.begin)

    async def _exchange(self, own: Hello, marks: list[Mark]) -> Hello:
        """Ask the master which of the marks its log has.

        Raises:
            LinkError: the master refuses, or must not be followed.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self._write(structs.replace(own, marks=marks).encode())
        either: list[asyncio.Future[Any]] = [self._answer, self._ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._answer.done():
            raise LinkError("the link ended in the greeting")
        master, self._answer = self._answer.result(), None
        if reason := master.refusal or own.refuses(master):
            raise LinkError(reason)
        if master.term < own.term and master.role != _CATCHING_UP and not is_returning_master(own):
            raise LinkError(f"{master.address} is in term {master.term}, this broker is in term {own.term}")
        if master.begin == master.end and own.begin < own.end:
            raise LinkError(
                f"the log of {master.address} is empty, that of this broker ends at {own.end} and is kept"
            )
        if master.end < own.begin:
            raise LinkError(
                f"the log of {master.address} ends at {master.end}, that of this broker begins "
                f"at {own.begin}. To copy it anew stop this broker and move its store folder away"
            )
        self.hello, self.copied_to = master, master.end
        return master

    # -- received frames -------------------------------------------------------------------------------

    def _take(self, data: memoryview) -> None:
        piece = self._reader.only_piece(data)
        if piece is not None:  # nearly always true
            self._store.append_raw(*piece)
            return
        for kind, offset, payload in self._reader.feed(data):
            if kind is FrameKind.PIECE:
                self._collect(offset, payload)
                continue
            self._append()
            if kind is FrameKind.HELLO:
                self._greeted(Hello.decode(payload))
            elif self.transferring:
                came = payload.tobytes()
                opened = came if self._sealing is None else self._sealing.open(kind, came)
                self._ours.peers.received(self, kind, opened)
            else:
                raise LinkError(f"it sends a frame {kind.name} in the greeting")

    def _greeted(self, hello: Hello) -> None:
        if self._answer is None or self._answer.done():
            raise LinkError("it says hello without having been asked")
        self._answer.set_result(hello)

    # -- reports ---------------------------------------------------------------------------------------

    def _report(self, received: int, durable: int) -> None:
        if (received, durable) == self._reported:
            return
        self._reported = received, durable
        if self._reader.hurry:
            self._repeat()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(ACK_SECONDS, self._repeat)

    def _repeat(self) -> None:
        if self._later is not None:
            self._forget_later()
        self._write(stream.ack(*self._reported))

    def _forget_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def end(self, error: Exception | None) -> None:
        self._forget_later()
        super().end(error)
        self._ours.peers.closed(self)


def is_returning_master(own: Hello) -> bool:
    """Whether this broker is a returning master, which copies the records that only a slave has.

    By then its tables are those of a slave that acted. Another slave, which did not act, has a lower term,
    and may be the only one with the last acknowledged messages. A slave in pre-online follows no lower term.
    """
    return own.broker_id == MASTER_ID and own.role == _CATCHING_UP


def copies_back(master: Hello, common: int, has: int, begin: int, end: int) -> bool:
    """Whether a master whose log ends at ``has`` copies this broker's records from ``common`` to ``end``.

    It does so before it serves, and only if this log is longer. A master that has led since and stored other
    messages after the common part keeps them, because they may be acknowledged. A serving master whose log is
    the beginning of this one goes back to pre-online: it came back alone, without its last messages.
    """
    if has >= end:
        return False
    if master.role == _CATCHING_UP:
        return not (master.keeps_own and begin < common < has)
    return master.copies_back and common == has
