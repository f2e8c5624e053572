"""Queue locks with replicas: strict mode requires the grants of the other members, else one broker decides
(LK-04..12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.replicas import ACTING, MASTER, SLAVE, Watch, following, ha_port, kill, online, same_end, send

from orbitmq.broker.role import Role, RoleChanged
from orbitmq.cluster.layout import ClusterError
from orbitmq.message.model import MessageQueue
from orbitmq.replication.members.heir import TRUSTED_S
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.runtime.seam import Runtime
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

STRICT = {**ACTING, "lockInStrictMode": "true"}
QUEUES = {MessageQueue("t", MASTER, number) for number in range(4)}
ONE = {MessageQueue("t", MASTER, 0)}

NOT_RECEIVED = "not received all queue locks of its name"

two = pytest.mark.orbitmq(replicas=2, settings=STRICT)
three = pytest.mark.orbitmq(replicas=3, settings=STRICT)
loose = pytest.mark.orbitmq(replicas=2, settings=ACTING)


async def ask(
    world: World,
    name: str,
    client_id: str,
    queues: set[MessageQueue],
    *,
    only: bool = False,
    runtime: Runtime | None = None,
) -> Command:
    client = RemotingClient(runtime or world.runtime)
    body = LockBatchRequestBody("g", client_id, only, queues)
    answer = await client.request(
        world.brokers[name].address, Command(RequestCode.LOCK_BATCH_MQ, body=body.encode()), 5000
    )
    await client.close()
    return answer


async def lock(
    world: World, name: str, client_id: str, queues: set[MessageQueue], *, only: bool = False
) -> set[MessageQueue]:
    answer = await ask(world, name, client_id, queues, only=only)
    assert answer.code == ResponseCode.SUCCESS
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


async def refuses(
    world: World, name: str, why: str = "the leader keeps the queue locks", queues: set[MessageQueue] = QUEUES
) -> None:
    refused = await ask(world, name, "other", queues)
    assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert why in (refused.remark or "")


async def locked_and_slave_lost(world: World, watch: Watch) -> None:
    """Let the master grant all queues, crash its slave, and cut the master off."""
    await online(world, watch)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    world.crash(SLAVE)
    world.partition(MASTER)


def apart(world: World) -> tuple[list[str], list[str]]:
    """The hosts of master and slave, to cut the connection between them."""
    return [world.machines[MASTER].host], [world.machines[SLAVE].host]


async def unlock(world: World, name: str, client_id: str, queues: set[MessageQueue]) -> None:
    client = RemotingClient(world.runtime)
    body = UnlockBatchRequestBody("g", client_id, False, queues)
    await client.request(
        world.brokers[name].address, Command(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()), 5000
    )
    await client.close()


@two
@pytest.mark.behaviour("LK-05")
@pytest.mark.behaviour("LK-06")
async def test_more_than_half_of_all_replicas_have_to_grant(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    assert await lock(world, SLAVE, "other", ONE, only=True) == ONE
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES - ONE
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == ONE, "the slave knows who has the rest"
    assert await lock(world, MASTER, "other", QUEUES) == ONE, "who got too few has nothing"


@two
@pytest.mark.behaviour("LK-06")
async def test_a_lost_member_costs_the_quorum_of_two(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    world.partition(SLAVE)
    begin = world.clock.monotonic()
    assert await lock(world, MASTER, "me", QUEUES) == set()
    assert world.clock.monotonic() - begin <= 2.1
    world.heal()
    await world.sleep(10)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES, "the locks gained below the quorum are ours"


@three
@pytest.mark.behaviour("LK-05")
async def test_of_three_two_are_enough(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    await world.stop_broker("broker-a-2")
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == set()


@two
@pytest.mark.behaviour("LK-07")
async def test_an_unlock_is_told_to_the_others_without_waiting(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    await unlock(world, MASTER, "me", ONE)
    await world.sleep(0.1)
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == ONE
    world.partition(SLAVE)
    begin = world.clock.monotonic()
    await unlock(world, MASTER, "me", QUEUES)
    assert world.clock.monotonic() - begin < 0.1


@two
async def test_a_lock_survives_the_change_of_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "other", QUEUES, only=True) == set()


@two
@pytest.mark.behaviour("LK-05")
async def test_a_renewal_that_too_few_grant_takes_nothing_away(orbitmq_world: World) -> None:
    """The client relies on the lock for 30 s more."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.partition(SLAVE)
        assert await lock(world, MASTER, "me", QUEUES) == set()
        world.heal()
        await world.until(lambda: following(world).transferring)
        await world.sleep(10)
        assert await lock(world, MASTER, "other", QUEUES) == set()
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES


@two
@pytest.mark.behaviour("LK-11")
async def test_strict_locks_of_a_master_that_began_anew_alone_wait_for_those_it_forgot(
    orbitmq_world: World,
) -> None:
    """The slave must not take over the empty table, or both would grant queues that a client still holds."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.partition(SLAVE)
        world.crash(MASTER)
        with pytest.raises(ClusterError):
            await world.start_broker(MASTER)  # start_broker waits until all brokers have registered
        await world.until(lambda: watch.role(MASTER) in (Role.MASTER, Role.FENCED))
        world.heal()
        await world.until(lambda: following(world).transferring)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await world.sleep(2)
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(TRUSTED_S)
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-04")
async def test_without_strict_mode_the_own_table_decides(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    begin = world.clock.monotonic()
    assert await lock(world, SLAVE, "other", ONE, only=True) == ONE
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    assert world.clock.monotonic() - begin < 0.1


@pytest.mark.orbitmq(replicas=2, settings={"lockInStrictMode": "true"})
@pytest.mark.behaviour("LK-06")
async def test_strict_locks_without_acting_masters_ask_the_name_servers(orbitmq_world: World) -> None:
    assert await lock(orbitmq_world, MASTER, "me", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-10")
async def test_a_slave_that_does_not_act_grants_no_lock(orbitmq_world: World) -> None:
    """A slave that restarts and cannot reach its master has an empty table, and must not grant from it."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await locked_and_slave_lost(world, watch)
        begins = asyncio.ensure_future(world.start_broker(SLAVE))
        await world.until(lambda: watch.role(SLAVE) is Role.PRE_ONLINE)
        await refuses(world, SLAVE)
        world.heal()
        await begins
        await refuses(world, SLAVE)
        await world.until(lambda: following(world).transferring)
        await world.sleep(1)
        await refuses(world, SLAVE)
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "other", QUEUES) == set()
        assert await lock(world, SLAVE, "me", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-11")
async def test_a_slave_that_began_anew_and_acts_grants_what_it_was_told(orbitmq_world: World) -> None:
    """Its master lives on beside it, cut off, and so do the clients with the master's locks."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await locked_and_slave_lost(world, watch)
        with pytest.raises(ClusterError):
            await world.start_broker(SLAVE)  # start_broker waits until all brokers have registered
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await refuses(world, SLAVE, NOT_RECEIVED)
        await world.sleep(28)
        await refuses(world, SLAVE, NOT_RECEIVED)
        await world.sleep(2)
        assert await lock(world, SLAVE, "other", QUEUES) == QUEUES


# -- one holder, whichever broker leads --------------------------------------------------------------------


@loose
@pytest.mark.behaviour("LK-12")
async def test_in_a_long_cut_a_queue_has_one_holder(orbitmq_world: World) -> None:
    """The holder reaches only the master and another client only the slave, for longer than a lock lasts."""
    world = orbitmq_world
    far = world.runtime.machine("10.0.0.99")
    held: list[tuple[str, float, float]] = []

    async def tries(name: str, client_id: str, runtime: Runtime | None) -> None:
        asked = world.clock.monotonic()
        answer = await ask(world, name, client_id, ONE, runtime=runtime)
        if answer.code == ResponseCode.SUCCESS and LockBatchResponseBody.decode(answer.body).lock_ok_mq_set:
            held.append((client_id, asked, asked + TRUSTED_S))

    async with Watch(world) as watch:
        await online(world, watch)
        await tries(MASTER, "me", None)
        world.partition(MASTER, "clients")
        for _ in range(40):
            await world.sleep(3)
            await tries(MASTER, "me", None)
            await tries(SLAVE, "other", far)
        assert watch.role(MASTER) is Role.FENCED
    mine = [one for one in held if one[0] == "me"]
    others = [one for one in held if one[0] == "other"]
    assert len(others) > 10, "it goes on at the slave"
    assert mine[-1][2] <= others[0][1], "not before nobody counts on a lock of the master any more"


@loose
@pytest.mark.behaviour("LK-12")
async def test_a_new_lock_waits_until_who_may_take_over_knows_it(orbitmq_world: World) -> None:
    """The HA connection is cut; the name servers see both brokers."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.sleep(2)
        assert await lock(world, MASTER, "me", ONE) == ONE
        cut = world.runtime.network.partition(*apart(world))
        begin = world.clock.monotonic()
        await refuses(world, MASTER, "a slave that may take over does not answer")
        assert world.clock.monotonic() - begin < 1, "a client waits 1 s for the answer"
        begin = world.clock.monotonic()
        assert await lock(world, MASTER, "me", ONE) == ONE
        assert world.clock.monotonic() - begin < 0.1, "the slave knows who holds it"
        await world.sleep(7)
        await refuses(world, MASTER, "a slave that may take over does not answer", QUEUES - ONE)
        await world.sleep(2)
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES - ONE, "the slave cannot use its copy now"
        cut()
        await world.sleep(10)
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "me", QUEUES) == ONE


@loose
@pytest.mark.behaviour("LK-12")
@pytest.mark.parametrize("clean", [True, False])
async def test_a_slave_that_is_gone_holds_up_no_lock(orbitmq_world: World, clean: bool) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.sleep(2)
        if clean:
            await world.stop_broker(SLAVE)
        else:
            world.crash(SLAVE)
        begin = world.clock.monotonic()
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        assert world.clock.monotonic() - begin < 0.1


@loose
@pytest.mark.behaviour("LK-11")
@pytest.mark.behaviour("LK-12")
async def test_who_takes_over_with_an_old_copy_waits(orbitmq_world: World) -> None:
    """The HA connection broke; the master lived on, granted a queue, and is gone."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        cut = world.runtime.network.partition(*apart(world))
        await world.sleep(10)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(MASTER)
        cut()
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await refuses(world, SLAVE, NOT_RECEIVED)
        await world.sleep(30)
        assert await lock(world, SLAVE, "other", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-12")
async def test_a_lock_that_was_renewed_before_the_change_is_held_behind_it(orbitmq_world: World) -> None:
    """The slave's copy of the lock is nearly a minute old."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", ONE) == ONE
        await world.sleep(57)
        cut = world.runtime.network.partition(*apart(world))
        assert await lock(world, MASTER, "me", ONE) == ONE
        world.crash(MASTER)
        cut()
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        acts_s = world.clock.monotonic()
        await world.sleep(5)
        assert await lock(world, SLAVE, "other", QUEUES) == QUEUES - ONE
        await world.sleep(acts_s + 30.5 - world.clock.monotonic())
        assert await lock(world, SLAVE, "other", ONE) == ONE


@loose
@pytest.mark.behaviour("LK-12")
async def test_a_master_that_leads_again_without_being_told_waits(orbitmq_world: World) -> None:
    """No name server answered for a while, and the slave, which may have led, is down."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.stop_broker(SLAVE)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.partition("nameserver")
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        await refuses(world, MASTER)
        world.heal()
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(30)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES


async def with_a_group(world: World, watch: Watch) -> None:
    """Wait until both brokers serve, and let a group consume."""
    await online(world, watch)
    await send(world, 1)
    async with world.consumer("g") as consumer:
        consumer.subscribe("t")
        await world.sleep(2)


@loose
@pytest.mark.behaviour("LK-11")
async def test_a_master_waits_that_returns_to_a_slave_without_the_locks(orbitmq_world: World) -> None:
    """The slave has restarted and not received the locks yet when the master is lost, too."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await with_a_group(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(SLAVE)
        world.partition(MASTER)
        begins = asyncio.ensure_future(world.start_broker(SLAVE))
        await world.until(lambda: watch.role(SLAVE) is Role.SLAVE)
        world.crash(MASTER)
        world.heal()
        await asyncio.gather(begins, world.start_broker(MASTER))
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(30)
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-11")
async def test_a_master_with_a_new_disk_that_gets_no_tables_waits(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups in its tables went with the disk, but their clients still hold locks."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await with_a_group(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        await world.until(lambda: same_end(world))
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        slave = world.brokers[SLAVE].part(StateExchange)
        monkeypatch.setattr(slave, "_handle_request", lambda *_: None)
        with pytest.raises(ClusterError):
            # three requests without a response take longer than start_broker waits
            await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await refuses(world, MASTER, NOT_RECEIVED)


@loose
@pytest.mark.behaviour("LK-11")
async def test_when_both_began_anew_the_master_waits(orbitmq_world: World) -> None:
    """Clients continue with locks that no broker has any more."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await with_a_group(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(MASTER)
        world.crash(SLAVE)
        await asyncio.gather(world.start_broker(SLAVE), world.start_broker(MASTER))
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(30)
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-11", "PO-45")
async def test_a_master_that_serves_before_it_has_asked_takes_locks_of_its_slave(
    orbitmq_world: World,
) -> None:
    """A name server that has just started shows no slave in time, so the master serves fenced and sends its
    slave no locks over the link. The slave must send its own locks first.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await with_a_group(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        await world.sleep(2)
        world.crash(MASTER)
        await world.stop_name_server()
        hosts = {name: machine.host for name, machine in world.machines.items()}
        heals = world.runtime.network.partition(["10.0.0.1"], [hosts[SLAVE]])
        links = world.runtime.network.partition([hosts[MASTER]], [hosts[SLAVE]])
        serves = asyncio.gather(world.start_name_server(), world.start_broker(MASTER))
        begin = world.clock.monotonic()
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        links()
        await world.until(lambda: following(world).transferring)
        await world.sleep(0.2)
        heals()
        await serves
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        assert watch.since(begin, MASTER)[-3:] == [Role.FENCED, Role.PRE_ONLINE, Role.MASTER]
        assert watch.role(SLAVE) is Role.SLAVE
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(30)
        assert await lock(world, MASTER, "other", QUEUES) == set()
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-11")
@pytest.mark.parametrize("acts", [True, False])
async def test_a_master_that_returns_to_its_heir_grants_at_once(orbitmq_world: World, acts: bool) -> None:
    """That holds if the slave has led meanwhile, and if the master returned before."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await with_a_group(world, watch)
        assert await lock(world, MASTER, "me", ONE) == ONE
        begin = world.clock.monotonic()
        world.crash(MASTER)
        if acts:
            await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
            assert await lock(world, SLAVE, "other", QUEUES) == QUEUES - ONE
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        assert (Role.ACTING_MASTER in watch.since(begin, SLAVE)) is acts
        assert await lock(world, MASTER, "me", QUEUES) == (ONE if acts else QUEUES)
        assert await lock(world, MASTER, "third", QUEUES) == set()


async def acts_and_freezes(world: World, watch: Watch, seconds: float) -> None:
    """Kill the master, let its slave grant all free queues, freeze the slave, and let it act again."""
    # Start the slave again, in a process that can be frozen.
    await world.stop_broker(SLAVE)
    await world.machines[SLAVE].begin(world.start_broker(SLAVE))
    await with_a_group(world, watch)
    assert await lock(world, MASTER, "me", ONE) == ONE
    world.crash(MASTER)
    await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
    assert await lock(world, SLAVE, "other", QUEUES) == QUEUES - ONE
    world.machines[SLAVE].freeze()
    await world.sleep(seconds)
    world.machines[SLAVE].thaw()
    await world.until(lambda: watch.role(SLAVE) is Role.SLAVE)
    await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)


@loose
@pytest.mark.behaviour("LK-14")
async def test_who_acts_again_within_the_time_of_a_lock_knows_all_of_them(orbitmq_world: World) -> None:
    """Consumers in order must not wait 40 s because their broker was frozen for 5 s."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await acts_and_freezes(world, watch, 5)
        assert await lock(world, SLAVE, "third", QUEUES) == set()
        assert await lock(world, SLAVE, "other", QUEUES) == QUEUES - ONE
        # A returning master receives them all.
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        assert await lock(world, MASTER, "third", QUEUES) == set()
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES - ONE


@loose
@pytest.mark.behaviour("LK-14")
async def test_a_master_that_returns_waits_for_what_is_left_of_its_slaves_wait(orbitmq_world: World) -> None:
    """The master must not start a wait of 30 s of its own."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await acts_and_freezes(world, watch, 40)
        acts_s = world.clock.monotonic()
        await refuses(world, SLAVE, NOT_RECEIVED)
        await world.sleep(10)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(acts_s + 29 - world.clock.monotonic())
        await refuses(world, MASTER, NOT_RECEIVED)
        await world.sleep(acts_s + 30.5 - world.clock.monotonic())
        assert await lock(world, MASTER, "third", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-14")
async def test_what_a_slave_has_told_a_master_it_tells_no_second_one(orbitmq_world: World) -> None:
    """The first master grants with these locks, and is gone before its slave learns of the grants."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await acts_and_freezes(world, watch, 5)
        begin = world.clock.monotonic()
        begins = asyncio.ensure_future(world.start_broker(MASTER))
        while watch.role(MASTER) is not Role.PRE_ONLINE:
            await world.sleep(0.001)
        heals: list[Callable[[], None]] = []
        world.brokers[MASTER].services.events.subscribe(
            RoleChanged, lambda _: heals.append(world.runtime.network.partition(*apart(world)))
        )
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        # The master has seen no request from the slave, so no other broker has to know of this.
        await unlock(world, MASTER, "other", QUEUES)
        assert await lock(world, MASTER, "third", QUEUES) == QUEUES - ONE
        world.crash(MASTER)
        begins.cancel()
        heals[0]()
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        assert world.clock.monotonic() - begin < 8
        await refuses(world, MASTER, NOT_RECEIVED)


@loose
@pytest.mark.behaviour("LK-12")
async def test_a_copy_of_the_locks_takes_none_back(orbitmq_world: World) -> None:
    """The client returns to the master, which still has its lock."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        await world.sleep(2)
        await unlock(world, SLAVE, "me", QUEUES)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "other", QUEUES) == set()


@loose
@pytest.mark.behaviour("PO-27")
async def test_half_of_an_older_link_holds_up_no_lock(orbitmq_world: World) -> None:
    """The cut leaves the master's half of the connection; its silence is noticed only after 20 s."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.sleep(2)
        cut = world.runtime.network.partition(*apart(world))
        link = following(world).link
        assert link is not None
        link.end(ConnectionResetError("ended here alone"))
        await world.sleep(0.5)
        cut()
        await world.until(lambda: following(world).transferring)
        begin = world.clock.monotonic()
        assert await lock(world, MASTER, "me", ONE) == ONE
        assert world.clock.monotonic() - begin < 0.1
        assert len(ha_port(world).connections) == 1
        assert ha_port(world).shared.replicas.in_sync == 2


async def refuses_or_holds(world: World, name: str, client_id: str) -> None:
    """Check that the client is granted none of the queues: by a refusal, or by an empty response."""
    answer = await ask(world, name, client_id, QUEUES)
    if answer.code == ResponseCode.SUCCESS:
        assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == set()
    else:
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def end(world: World, name: str, way: str) -> None:
    """End a broker: cleanly, by a kill or by a power loss."""
    if way == "stop":
        await world.stop_broker(name)
    elif way == "kill -9":
        kill(world, name)
    else:
        world.crash(name, Keep.NOTHING)


WAYS = pytest.mark.parametrize("way", ["stop", "kill -9", "power loss"])


@WAYS
@pytest.mark.behaviour("LK-15")
@pytest.mark.parametrize("group", ["unknown", "known"])
@pytest.mark.orbitmq
async def test_a_lone_master_that_begins_anew_has_its_locks(
    orbitmq_world: World, way: str, group: str
) -> None:
    """The locks are on its disk, so it grants no queue that another client still works on."""
    world = orbitmq_world
    if group == "known":
        await send(world, 1)
        async with world.consumer("g") as consumer:
            consumer.subscribe("t")
            await world.sleep(2)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    await end(world, MASTER, way)
    begin = world.clock.monotonic()
    await world.start_broker(MASTER)
    assert await lock(world, MASTER, "other", QUEUES) == set()
    assert await lock(world, MASTER, "me", ONE) == ONE
    await world.sleep(begin + 29.9 - world.clock.monotonic())
    assert await lock(world, MASTER, "other", QUEUES) == set()
    # No client relies on a lock that it has not renewed since.
    await world.sleep(0.5)
    assert await lock(world, MASTER, "other", QUEUES) == QUEUES - ONE
    # After another restart the disk has these locks, without the one that was given back.
    await unlock(world, MASTER, "me", ONE)
    await world.sleep(6)
    await end(world, MASTER, way)
    await world.start_broker(MASTER)
    assert await lock(world, MASTER, "third", QUEUES) == ONE


@WAYS
@pytest.mark.behaviour("LK-11")
@pytest.mark.parametrize("replicas", ["1", "2"])
async def test_a_master_that_starts_as_one_waits_where_another_may_have_led(
    orbitmq_runtime: SimulatedRuntime, way: str, replicas: str
) -> None:
    settings = {**ACTING, "skipPreOnline": "true", "totalReplicas": replicas}
    async with World(orbitmq_runtime, settings=settings) as world:
        await world.sleep(40)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        await end(world, MASTER, way)
        begin = world.clock.monotonic()
        await world.start_broker(MASTER)
        while world.clock.monotonic() < begin + 29:
            await refuses_or_holds(world, MASTER, "other")
            await world.sleep(0.3)
        await world.sleep(11)
        assert await lock(world, MASTER, "other", QUEUES) == QUEUES


@WAYS
@pytest.mark.behaviour("LK-11")
@pytest.mark.orbitmq(replicas=2)
async def test_a_slave_that_an_operator_makes_a_master_waits(orbitmq_world: World, way: str) -> None:
    """A slave's copy of the locks may lack the last ones, and so may the disk of a former slave."""
    world = orbitmq_world
    await send(world, 1)
    async with world.consumer("g") as consumer:
        consumer.subscribe("t")
        await world.sleep(2)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    await end(world, MASTER, way)
    await end(world, SLAVE, way)
    members = world._cluster._members
    slave = members[SLAVE]
    members[SLAVE] = replace(slave, broker_id=0)
    await world.start_broker(SLAVE)
    await refuses(world, SLAVE, NOT_RECEIVED)
    await world.sleep(31)
    assert await lock(world, SLAVE, "other", ONE) == ONE
    # The broker has all locks as long as it is not a slave again.
    await end(world, SLAVE, way)
    await world.start_broker(SLAVE)
    assert await lock(world, SLAVE, "third", QUEUES) == QUEUES - ONE
    for broker_id in (1, 0):
        await end(world, SLAVE, way)
        members[SLAVE] = replace(slave, broker_id=broker_id)
        await world.start_broker(SLAVE)
    await refuses(world, SLAVE, NOT_RECEIVED)


@pytest.mark.behaviour("LK-15")
@pytest.mark.orbitmq
async def test_a_lock_that_the_disk_refuses_is_not_granted(orbitmq_world: World) -> None:
    """A restart would lose the lock. Held locks are renewed nevertheless."""
    world = orbitmq_world
    assert await lock(world, MASTER, "me", ONE) == ONE
    disk = world.machines[MASTER].disk
    disk.fail("*", "config", times=-1)
    refused = await ask(world, MASTER, "me", QUEUES)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the disk refuses" in (refused.remark or "")
    assert await lock(world, MASTER, "me", ONE) == ONE
    disk.heal()
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
