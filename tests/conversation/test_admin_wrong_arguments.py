"""Each operation refuses arguments of a wrong type before it contacts a server, and names the type it
takes.
"""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any

import pytest

from orbitmq.admin import Admin
from orbitmq.errors import UnknownOptionError, ValidationError
from orbitmq.testing.machine.simulated import simulated_runtime

pytestmark = pytest.mark.behaviour("SK-24")
PARTS = ("brokers", "topics", "groups", "messages", "dead_letters", "timers", "definitions")
WRONG: dict[str, tuple[list[Any], str]] = {
    "str": ([None, 5, b"t", ["t"], ""], "must be a string|must not be empty"),
    "str | None": ([5, b"t", ["t"], ""], "must be a string|must not be empty"),
    "int": ([None, "3", 1.5, True, -1, 1 << 63], "must be [01] to "),
    "int | None": (["3", 1.5, True, -1, 1 << 63], "must be [01] to "),
    "bool": ([None, 1, "yes"], "must be bool"),
    "datetime": ([None, "today", 5, datetime(2026, 1, 1)], "must be datetime|must have a time zone"),
    "datetime | None": (["today", 5, datetime(2026, 1, 1)], "must be datetime|must have a time zone"),
    "Mapping[str, str]": ([None, 5, "a=b"], "must be Mapping"),
    "Mapping[MessageQueue, int]": ([None, 5, "t"], "must be Mapping"),
    "GroupSettings | None": ([5, {}], "must be GroupSettings"),
}
# Valid values of the arguments that stand beside a wrong one.
RIGHT: dict[str, Any] = {
    "str": "name",
    "int": 1,
    "Mapping[str, str]": {},
    "Iterable[Move]": [],
    "Mapping[MessageQueue, int]": {},
}


def operations() -> list[tuple[str, str]]:
    admin = Admin(name_servers="127.0.0.1:1", runtime=simulated_runtime())
    return [
        (part, name)
        for part in PARTS
        for name, method in inspect.getmembers(getattr(admin, part), inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize(("part", "name"), operations())
async def test_an_argument_of_another_kind(orbitmq_loop: None, part: str, name: str) -> None:
    """No server runs, so an operation that contacts one fails in another way."""
    async with Admin(name_servers="127.0.0.1:1", runtime=simulated_runtime()) as admin:
        operation = getattr(getattr(admin, part), name)
        parameters = inspect.signature(operation).parameters
        needed = {
            each.name: RIGHT.get(each.annotation, datetime.now().astimezone())
            for each in parameters.values()
            if each.default is each.empty
        }
        for each in parameters.values():
            values, text = WRONG.get(each.annotation, ([], ""))
            for wrong in values:
                with pytest.raises(ValidationError, match=f"{each.name} ({text})"):
                    await operation(**{**needed, each.name: wrong})
        with pytest.raises(UnknownOptionError, match="there is no option 'nonesuch'"):
            await operation(**needed, nonesuch=1)
        if needed:
            with pytest.raises(UnknownOptionError, match=f"{name}: missing"):
                await operation()


async def test_moves_and_quotas(orbitmq_loop: None) -> None:
    async with Admin(name_servers="127.0.0.1:1", runtime=simulated_runtime()) as admin:
        for wrong in (1, "t", None):
            with pytest.raises(ValidationError, match="each of moves must be Move"):
                await admin.groups.move("g", [wrong])  # type: ignore[list-item]
        for rate in (-1, 2**50 + 1):
            with pytest.raises(
                ValidationError, match=r"bytes_in must be 0 \(no limit\) to 1,125,899,906,842,624"
            ):
                await admin.quotas.set("topic", "t", bytes_in=rate)


async def test_a_misspelt_argument_and_one_without_its_name(orbitmq_loop: None) -> None:
    async with Admin(name_servers="127.0.0.1:1", runtime=simulated_runtime()) as admin:
        topics: Any = admin.topics
        with pytest.raises(UnknownOptionError, match="no option 'queue': did you mean 'queues'"):
            await topics.create("t", queue=3)
        with pytest.raises(UnknownOptionError, match="create: too many positional arguments"):
            await topics.create("t", 3)
