"""The tables of a master that was killed some seconds after it wrote them to the disk."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import Popped, ack, pop
from tests.conversation.test_replication_resets import (
    OWN_FILTER,
    READABLE,
    commit,
    committed,
    peer_of,
    reset,
    twenty_read,
    waits,
)
from tests.replicas import ACTING, MASTER, SLAVE, cut_off, kill, role_of

from orbitmq.broker.role import Role
from orbitmq.replication.state.tables_sender import SILENT_SECONDS
from orbitmq.testing import World
from orbitmq.wire.codes import ResponseCode

# The time after which all tables are in their files, and the time after the last change at which a kill
# comes.
IN_FILES_S, UNSAVED_S = 10.0, 0.5
LONG_MS = 600_000


async def popped_all(peer: BrokerPeer) -> Popped:
    """Send five more messages, and pop them for a long time."""
    await peer.create("popped")
    for number in range(5):
        await peer.sent(b"%d" % number, topic="popped")
    return await pop(peer, topic="popped", invisible_time=LONG_MS)


async def is_told(peer: BrokerPeer, at: int, to: int) -> None:
    """Let a member receive its group's new offset and continue there."""
    moved = await peer.pull(at, sys_flag=int(OWN_FILTER))
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, str(to))
    await peer.pull(to, sys_flag=int(OWN_FILTER))


async def leads_again(world: World) -> None:
    """Heal the network, start the master and wait until it leads."""
    world.heal()
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    await world.sleep(2)


async def is_back(world: World, *, acts: bool) -> None:
    """Kill the master and wait until it leads again; ``acts``: its slave acts in between."""
    kill(world)
    if acts:
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    await world.sleep(2)


async def is_back_with_its_name_server(world: World) -> None:
    """Restart master and name server at once: the master serves before it learns of a slave."""
    await world.stop_name_server()
    kill(world)
    world.partition(SLAVE)
    started = asyncio.gather(world.start_broker(MASTER), world.start_name_server())
    await world.until(lambda: role_of(world, MASTER) is Role.FENCED)
    world.heal()
    await started
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    await world.sleep(2)


BACK = {
    "before its slave acts": partial(is_back, acts=False),
    "after its slave acted": partial(is_back, acts=True),
    "with its name server": is_back_with_its_name_server,
}


@pytest.mark.behaviour("MO-08", "PO-08", "PO-42", "PO-45")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("back", BACK)
async def test_what_the_slave_was_told_since_is_taken_back_whether_it_acted_or_not(
    orbitmq_world: World, back: str
) -> None:
    """These are commits, one of them backwards, and acknowledgements of popped messages."""
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        popped = await popped_all(master)
        world.brokers[MASTER].services.offsets.commit("sought", "T", 0, 20)
        await world.sleep(IN_FILES_S)
        await commit(master, 20)
        world.brokers[MASTER].services.offsets.commit("sought", "T", 0, 4)
        for index in range(4):
            assert (await ack(master, popped.receipt(index), topic="popped")).code == ResponseCode.SUCCESS
        await world.sleep(UNSAVED_S)
        await BACK[back](world)
        assert await committed(master) == "20"
        for name in (MASTER, SLAVE):
            assert world.brokers[name].services.offsets.query("sought", "T", 0) == 4
        assert (await pop(master, topic="popped")).bodies == []
        await world.sleep(LONG_MS / 1000)
        assert (await pop(master, topic="popped")).bodies == [b"4"]


@pytest.mark.behaviour("MO-22")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("acts", [False, True])
async def test_a_reset_that_the_killed_master_has_told_is_over(orbitmq_world: World, acts: bool) -> None:
    """The reset must not move the group again, also when no slave has acted."""
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        await world.sleep(IN_FILES_S)
        await reset(master, 5)
        await is_told(master, 20, 5)
        await commit(master, 20)
        await world.sleep(UNSAVED_S)
        await is_back(world, acts=acts)
        assert [waits(world, name) for name in (MASTER, SLAVE)] == [False, False]
        assert await committed(master) == "20"


@pytest.mark.behaviour("MO-22")
async def test_a_reset_that_a_broker_alone_has_told_is_over(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master, replicas=1)
        await world.sleep(IN_FILES_S)
        await reset(master, 5)
        await is_told(master, 20, 5)
        await world.sleep(UNSAVED_S)
        kill(world)
        await world.start_broker(MASTER)
        assert not waits(world, MASTER)
        assert await committed(master) == "5"


@pytest.mark.behaviour("MO-22")
async def test_a_reset_that_a_pop_has_heard_is_not_lost(orbitmq_world: World) -> None:
    """The end of the reset is on the disk and the group's new offset is not; the reset must not be
    forgotten.
    """
    world = orbitmq_world
    async with peer_of(world, MASTER) as master:
        popped = await popped_all(master)
        for index in range(5):
            await ack(master, popped.receipt(index), topic="popped")
        await world.sleep(IN_FILES_S)
        await reset(master, 2, topic="popped")
        again = await pop(master, topic="popped")
        assert again.bodies == [b"2", b"3", b"4"]
        await world.sleep(UNSAVED_S)
        kill(world)
        await world.start_broker(MASTER)
        await world.sleep(30)
        assert (await pop(master, topic="popped")).bodies == [b"2", b"3", b"4"]


@pytest.mark.behaviour("PO-42")
@pytest.mark.orbitmq(replicas=3, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("stale", [SLAVE, "broker-a-2"])
async def test_a_slave_that_was_not_told_takes_nothing_back(orbitmq_world: World, stale: str) -> None:
    """The slave's tables have the same version; its offset must not move the group back, nor its pops repeat
    messages.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        popped = await popped_all(master)
        await reset(master, 18)
        await world.sleep(IN_FILES_S)
        cut_off(world, stale)
        await is_told(master, 17, 18)
        await commit(master, 20)
        for index in range(5):
            await ack(master, popped.receipt(index), topic="popped")
        await world.sleep(IN_FILES_S)
        kill(world)
        # The slave with the latest tables is away: only the other one can send its tables.
        kill(world, "broker-a-2" if stale == SLAVE else SLAVE)
        await leads_again(world)
        for name in (MASTER, stale):
            assert not waits(world, name)
            assert world.brokers[name].services.offsets.query("cg", "T", 0) == 20
        await world.sleep(LONG_MS / 1000)
        assert (await pop(master, topic="popped")).bodies == []


@pytest.mark.behaviour("PO-42")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("after_s", [UNSAVED_S, IN_FILES_S])
@pytest.mark.parametrize("pops", [False, True])
async def test_a_slave_that_was_not_told_undoes_no_reset_that_went_back(
    orbitmq_world: World, after_s: float, pops: bool
) -> None:
    """The slave knows a later offset of the group, which must not skip the messages of the reset."""
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        popped = await popped_all(master)
        for index in range(5):
            await ack(master, popped.receipt(index), topic="popped")
        await world.sleep(1)
        cut_off(world)
        await world.sleep(2 * SILENT_SECONDS + 0.2)
        if pops:
            await reset(master, 2, topic="popped")
            assert (await pop(master, topic="popped")).bodies == [b"2", b"3", b"4"]
        else:
            await reset(master, 5)
            await is_told(master, 18, 5)
        await world.sleep(after_s)
        kill(world)
        await leads_again(world)
        if pops:
            await world.sleep(30)
            assert (await pop(master, topic="popped")).bodies == [b"2", b"3", b"4"]
        else:
            for name in (MASTER, SLAVE):
                assert not waits(world, name)
                assert world.brokers[name].services.offsets.query("cg", "T", 0) == 5


@pytest.mark.behaviour("PO-42")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
async def test_where_groups_were_when_a_slave_was_cut_off_is_on_the_disk(orbitmq_world: World) -> None:
    """The slave's offsets are not taken, so those that the master sent it before must be on the master's
    disk.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        await world.sleep(IN_FILES_S)
        await commit(master, 20)
        await world.sleep(0.3)
        cut_off(world)
        world.brokers[MASTER].services.offsets.commit("other", "T", 0, 7)
        await world.sleep(2 * SILENT_SECONDS + 0.2)
        kill(world)
        await leads_again(world)
        assert await committed(master) == "20"
        assert world.brokers[MASTER].services.offsets.query("other", "T", 0) == 7


@pytest.mark.behaviour("PO-42")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
async def test_who_was_not_told_is_on_the_disk_before_what_it_was_not_told(orbitmq_world: World) -> None:
    """The end of a reset reaches the disk at once, the note on the slave only with the table files; the group
    must not go back.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        await world.sleep(IN_FILES_S)
        cut_off(world)
        await commit(master, 19)
        await world.sleep(2 * SILENT_SECONDS + 0.1)
        await reset(master, 20)
        await is_told(master, 19, 20)
        await world.sleep(0.1)
        kill(world)
        await leads_again(world)
        for name in (MASTER, SLAVE):
            assert world.brokers[name].services.offsets.query("cg", "T", 0) == 20


@pytest.mark.behaviour("PO-42")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("order", [(MASTER, SLAVE), (SLAVE, MASTER)])
async def test_a_slave_that_was_killed_too_takes_nothing_back(
    orbitmq_world: World, order: tuple[str, str]
) -> None:
    """The slave acknowledged offsets that its disk lacks; the older ones in its files must not move the group
    back.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master)
        await world.sleep(IN_FILES_S)
        await reset(master, 20)
        await is_told(master, 18, 20)
        await world.sleep(0.3)
        assert world.brokers[SLAVE].services.offsets.query("cg", "T", 0) == 20
        for name in order:
            kill(world, name)
        for name in order:
            await world.start_broker(name)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)
        for name in order:
            assert world.brokers[name].services.offsets.query("cg", "T", 0) == 20
