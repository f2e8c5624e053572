"""Users and rules that changed on both sides of a fault: the later change counts, deletions included."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.test_replication_keys import KEYS, users
from tests.conversation.test_replication_members import SECOND_SLAVE
from tests.conversation.test_replication_users import (
    SECRET,
    alike,
    allow,
    ask,
    change,
    create,
    get,
    known,
)
from tests.replicas import ACTING, MASTER, SLAVE, cut_off, following, role_of

from orbitmq import Credentials
from orbitmq.auth.users import User, UserStatus
from orbitmq.broker.role import Role
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.signing import Secret

OLD = {"username": "old"}


@pytest.fixture
def world(orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    """A cluster with the users app and old, known to both brokers; the slave acts when its master is away."""
    found = World(orbitmq_runtime, replicas=2, settings={**KEYS, **ACTING})
    orbitmq_loop.enter(found)
    orbitmq_loop.run(prepare(found))
    return found


async def prepare(world: World) -> None:
    await world.until(lambda: following(world).transferring)
    await create(world, MASTER)
    await allow(world, MASTER, "Topic:orders")
    old = UserInfo(password="old-1").encode()
    assert await ask(world, MASTER, Code.AUTH_CREATE_USER, OLD, old) == (0, None)
    await world.until(lambda: alike(world))


async def acts(world: World) -> None:
    await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)


async def back(world: World) -> None:
    """Wait until the master leads again and both brokers have the same users."""
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER and role_of(world, SLAVE) is Role.SLAVE)
    await world.until(lambda: following(world).transferring, 60)
    await world.until(lambda: alike(world))


async def revoke(world: World, broker: str) -> None:
    """Disable one user, delete the rules of that user, and delete another one."""
    assert await change(world, broker, user_status="disable") == (0, None)
    assert await ask(world, broker, Code.AUTH_DELETE_ACL, {"subject": "User:app"}) == (0, None)
    assert await ask(world, broker, Code.AUTH_DELETE_USER, OLD) == (0, None)


def is_revoked(world: World, broker: str = MASTER) -> bool:
    found = known(world, broker)
    app = found["users"]["app"]
    return found["rules"] == {} and "old" not in found["users"] and not app.is_enabled


@pytest.mark.behaviour("AU-43")
@pytest.mark.parametrize("restarts", ["master", "both"])
async def test_what_a_master_revoked_while_its_slave_was_cut_off_does_not_come_back(
    world: World, restarts: str
) -> None:
    cut_off(world)
    await world.until(lambda: not following(world).transferring)
    await revoke(world, MASTER)
    world.crash(MASTER)
    world.heal()
    await acts(world)
    # The acting slave cannot have the change.
    assert "disabled" not in str(await get(world, SLAVE))
    new = UserInfo(password="new-secret-1").encode()
    assert await ask(world, SLAVE, Code.AUTH_CREATE_USER, {"username": "new"}, new) == (0, None)
    if restarts == "both":
        world.crash(SLAVE)
        await world.start_broker(SLAVE)
    await world.start_broker(MASTER)
    await back(world)
    assert is_revoked(world)
    assert sorted(known(world, SLAVE)["users"]) == ["app", "inner", "new", "root"]
    assert (await get(world, SLAVE))[1] == "User:app is disabled."


@pytest.mark.behaviour("AU-43")
async def test_what_an_acting_slave_revoked_does_not_come_back(world: World) -> None:
    world.crash(MASTER)
    await acts(world)
    await revoke(world, SLAVE)
    await world.start_broker(MASTER)
    await back(world)
    assert is_revoked(world)


@pytest.mark.behaviour("AU-43")
@pytest.mark.parametrize("later", [MASTER, SLAVE])
async def test_of_two_changes_of_a_user_the_later_one_counts(world: World, later: str) -> None:
    """The master stays alive, and its slave acts: neither can reach the other."""
    hosts = {name: machine.host for name, machine in world.machines.items()}
    world.runtime.network.partition([hosts[MASTER]], [hosts["nameserver"], hosts[SLAVE]])
    world.disconnect(MASTER)
    await acts(world)
    earlier = SLAVE if later == MASTER else MASTER
    assert await change(world, earlier, user_status="enable", password="secret-of-app-2") == (0, None)
    await world.sleep(1)
    await revoke(world, later)
    world.heal()
    await back(world)
    assert is_revoked(world)
    assert known(world, MASTER)["users"]["app"].secret == Secret(SECRET)


@pytest.mark.behaviour("AU-43")
@pytest.mark.parametrize("later", [MASTER, SLAVE])
async def test_a_revoked_user_comes_back_by_a_later_change(world: World, later: str) -> None:
    hosts = {name: machine.host for name, machine in world.machines.items()}
    world.runtime.network.partition([hosts[MASTER]], [hosts["nameserver"], hosts[SLAVE]])
    world.disconnect(MASTER)
    await acts(world)
    await revoke(world, SLAVE if later == MASTER else MASTER)
    await world.sleep(1)
    assert await change(world, later, user_status="enable", password="secret-of-app-2") == (0, None)
    world.heal()
    await back(world)
    found = known(world, MASTER)
    assert found["users"]["app"] == User("app", Secret("secret-of-app-2"))
    assert (found["rules"], "old" in found["users"]) == ({}, False)


@pytest.mark.behaviour("AU-44")
async def test_a_slave_that_knows_later_changes_than_its_master_tells_them(world: World) -> None:
    """The master's folder is an old copy."""
    files = world.machines[MASTER].runtime.files
    config = f"{world.brokers[MASTER].services.config.store_path_root_dir}/config"
    await world.stop_broker(MASTER)
    old = {name: files.read_bytes(f"{config}/{name}.json") for name in ("users", "acls")}
    await world.start_broker(MASTER)
    await back(world)
    await revoke(world, MASTER)
    await world.until(lambda: alike(world))
    await world.stop_broker(MASTER)
    for name, data in old.items():
        files.write_atomic(f"{config}/{name}.json", data)
    await world.start_broker(MASTER)
    await back(world)
    assert is_revoked(world)


@pytest.mark.behaviour("AU-44")
async def test_a_slave_without_its_master_makes_no_change_of_its_own_count(world: World) -> None:
    """Users that a slave has from its settings, or from an earlier build, undo no change of its master."""
    cut_off(world)
    await world.until(lambda: not following(world).transferring)
    access = users(world, SLAVE)
    access.users.put(User("app", Secret("another"), status=UserStatus.DISABLE))
    access.users.put(User("own", Secret("own-secret-1")))
    world.heal()
    await back(world)
    assert known(world, SLAVE)["users"]["app"] == User("app", Secret(SECRET))
    assert "own" not in known(world, MASTER)["users"]


@pytest.mark.orbitmq(replicas=3, settings={**KEYS, **ACTING})
@pytest.mark.behaviour("AU-44")
async def test_what_the_first_of_two_acting_slaves_revoked_holds_when_it_is_back(
    orbitmq_world: World,
) -> None:
    """The second slave cannot have the change, and gives its own table to the returning master."""
    world = orbitmq_world
    await prepare(world)
    third = world.brokers[SECOND_SLAVE]
    await world.until(lambda: known(world, SECOND_SLAVE) == known(world, MASTER))
    assert third.part(HaClient).transferring
    world.crash(MASTER)
    await acts(world)
    await revoke(world, SLAVE)
    world.crash(SLAVE)
    await world.until(lambda: role_of(world, SECOND_SLAVE) is Role.ACTING_MASTER, 60)
    assert not is_revoked(world, SECOND_SLAVE)
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER, 60)
    assert not is_revoked(world)
    await world.start_broker(SLAVE)
    await back(world)
    assert is_revoked(world)
    await world.until(lambda: is_revoked(world, SECOND_SLAVE))


@pytest.mark.behaviour("AU-44")
async def test_users_of_the_settings_of_a_master_that_lost_its_disk_undo_nothing(world: World) -> None:
    await revoke(world, MASTER)
    new_root = Credentials("root", "root-secret-2")
    body = UserInfo(password="root-secret-2").encode()
    assert await ask(world, MASTER, Code.AUTH_UPDATE_USER, {"username": "root"}, body) == (0, None)
    await world.until(lambda: alike(world))
    world.crash(MASTER)
    world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
    await acts(world)
    await world.start_broker(MASTER)
    await back(world)
    assert is_revoked(world)
    assert known(world, MASTER)["users"]["root"].secret == new_root.secret_key
    assert (await ask(world, MASTER, Code.AUTH_LIST_USER, {"filter": ""}, keys=new_root))[0] == 0
