"""The roles of a broker: the allowed changes, and the rights of each."""

from __future__ import annotations

import pytest

from orbitmq.broker.role import ALLOWED, Role, RoleChanged, RoleError, RoleState, role_of_setting


@pytest.mark.parametrize("before", list(Role))
@pytest.mark.parametrize("after", list(Role))
def test_a_role_changes_along_the_table_only(before: Role, after: Role) -> None:
    state = RoleState(before, 1000)
    if after is before:
        assert state.move(after, 2000) is None
        assert state.since_ms == 1000
    elif after in ALLOWED[before]:
        assert state.move(after, 2000) == RoleChanged(before, after, 2000)
        assert (state.role, state.since_ms) == (after, 2000)
    else:
        with pytest.raises(RoleError, match=f"{before.value} cannot become {after.value}"):
            state.move(after, 2000)
        assert (state.role, state.since_ms) == (before, 1000)


def test_a_master_does_not_act_for_itself() -> None:
    assert Role.ACTING_MASTER not in ALLOWED[Role.MASTER]
    assert set(ALLOWED) == set(Role)


@pytest.mark.parametrize(
    ("role", "takes_messages", "leads"),
    [
        (Role.MASTER, True, True),
        (Role.FENCED, True, False),
        (Role.ACTING_MASTER, False, True),
        (Role.SLAVE, False, False),
        (Role.PRE_ONLINE, False, False),
    ],
)
def test_what_a_role_may_do(role: Role, takes_messages: bool, leads: bool) -> None:
    state = RoleState(role, 0)
    assert (state.takes_messages, state.leads) == (takes_messages, leads)


def test_the_setting_gives_the_first_role() -> None:
    assert [role_of_setting(text) for text in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")] == [
        Role.MASTER,
        Role.MASTER,
        Role.SLAVE,
    ]
