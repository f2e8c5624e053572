"""Users change at the leading broker while brokers lose power or their link is cut: the last change holds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.test_replication_keys import KEYS, users
from tests.conversation.test_replication_users import allow, ask, change, known
from tests.replicas import ACTING, MASTER, SLAVE, cut_off, following, role_of
from tests.seeds import seeds

from orbitmq import Credentials
from orbitmq.broker.role import Role
from orbitmq.testing import Keep
from orbitmq.testing.world import World
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import RequestCode as Code

STEPS = 8
OTHERS = {MASTER: SLAVE, SLAVE: MASTER}


async def revoke_or_give(world: World, leader: str) -> str:
    """One change, answered with success; returns which table it changed."""
    dice = world.runtime.random
    kind = dice.randrange(4)
    match kind:
        case 0:
            done = await change(world, leader, user_status="disable")
        case 1:
            done = await change(world, leader, user_status="enable", password=f"secret-{dice.randrange(99)}")
        case 2:
            done = await allow(world, leader, "Topic:orders")
        case _:
            await allow(world, leader, "Topic:orders")
            done = await ask(world, leader, Code.AUTH_DELETE_ACL, {"subject": "User:app"})
    assert done == (0, None)
    return "users" if kind < 2 else "rules"


async def refuses_alike(world: World, name: str, expected: dict[str, Any]) -> None:
    user = expected["users"]["app"]
    code, remark = await ask(
        world,
        name,
        Code.GET_TOPIC_CONFIG,
        {"topic": "orders", "lo": "false"},
        keys=Credentials("app", user.secret.reveal()),
    )
    assert (remark == "User:app is disabled.") == (not user.is_enabled), (code, remark)


async def linked(world: World) -> None:
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER and role_of(world, SLAVE) is Role.SLAVE)
    await world.until(lambda: following(world).transferring, 60)


@pytest.mark.behaviour("AU-36", "AU-39")
@pytest.mark.parametrize("orbitmq_seed", seeds(6))
@pytest.mark.orbitmq(replicas=2, settings={**KEYS, **ACTING})
async def test_a_change_of_whoever_leads_holds_everywhere(orbitmq_world: World, orbitmq_seed: int) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    await linked(world)
    new = UserInfo(password="secret-of-app-1").encode()
    assert await ask(world, MASTER, Code.AUTH_CREATE_USER, {"username": "app"}, new) == (0, None)
    for _ in range(STEPS):
        await revoke_or_give(world, MASTER)
        expected = known(world, MASTER)
        await world.until(lambda: known(world, MASTER) == known(world, SLAVE))
        await world.sleep(dice.random())
        lost = dice.choice((MASTER, SLAVE))
        stays = OTHERS[lost]
        world.crash(lost, dice.choice(list(Keep)))
        if lost == MASTER:
            await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        await refuses_alike(world, stays, expected)
        if dice.random() < 0.7:
            await revoke_or_give(world, stays)
        expected = known(world, stays)
        await world.sleep(dice.random() * 5)
        await world.start_broker(lost)
        await linked(world)
        await world.until(lambda: known(world, MASTER) == known(world, SLAVE))
        assert known(world, MASTER) == expected
        for name in (MASTER, SLAVE):
            await refuses_alike(world, name, expected)
    assert users(world, SLAVE).users.get("root") is not None


@pytest.mark.behaviour("AU-43")
@pytest.mark.parametrize("orbitmq_seed", seeds(6))
@pytest.mark.orbitmq(replicas=2, settings={**KEYS, **ACTING})
async def test_the_last_change_holds_everywhere_whoever_made_it(orbitmq_world: World) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    await linked(world)
    new = UserInfo(password="secret-of-app-1").encode()
    assert await ask(world, MASTER, Code.AUTH_CREATE_USER, {"username": "app"}, new) == (0, None)
    last = known(world, MASTER)

    async def changes(broker: str) -> None:
        for _ in range(dice.randrange(3)):
            await world.sleep(dice.random())
            table = await revoke_or_give(world, broker)
            last[table] = {**last[table], "app": known(world, broker)[table].get("app")}

    for _ in range(STEPS):
        await world.until(lambda: known(world, MASTER) == known(world, SLAVE))
        cut_off(world)
        await changes(MASTER)
        world.crash(MASTER, dice.choice(list(Keep)))
        world.heal()
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        await changes(SLAVE)
        if dice.random() < 0.3:
            world.crash(SLAVE, dice.choice(list(Keep)))
            await world.start_broker(SLAVE)
        await world.start_broker(MASTER)
        await linked(world)
        await world.until(lambda: known(world, MASTER) == known(world, SLAVE))
        found = known(world, MASTER)
        assert {table: found[table].get("app") for table in found} == {
            table: last[table].get("app") for table in found
        }
