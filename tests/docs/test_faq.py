"""The errors that docs/faq.md quotes are those that the client raises."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from tests.docs.test_readme import ROOT

from orbitmq import Message, Producer
from orbitmq.errors import ClientStateError, OrbitError, ValidationError

PAGE = " ".join((ROOT / "docs" / "faq.md").read_text(encoding="utf-8").split())
NOBODY = "127.0.0.1:1"


async def not_running() -> None:
    await Producer("p", name_servers=NOBODY).send(Message("a", b"1"))


async def bad_name() -> None:
    async with Producer("p", name_servers=NOBODY) as producer:
        await producer.send(Message("a b", b"1"))


async def too_large() -> None:
    async with Producer("p", name_servers=NOBODY) as producer:
        await producer.send(Message("a", bytes(5_000_000)))


async def milliseconds() -> None:
    Producer("p", name_servers=NOBODY, timeout=3_000_000)


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        (not_running, ClientStateError),
        (bad_name, ValidationError),
        (too_large, ValidationError),
        (milliseconds, ValidationError),
    ],
)
def test_an_error_is_on_the_page_as_it_is_raised(
    mistake: Callable[[], Awaitable[None]], kind: type[OrbitError]
) -> None:
    with pytest.raises(kind) as raised:
        asyncio.run(mistake())
    assert f"{kind.__name__}: {raised.value}" in PAGE


def test_the_error_of_another_event_loop_is_on_the_page() -> None:
    producer = Producer("p", name_servers=NOBODY)
    asyncio.run(producer.start())

    async def send() -> None:
        await producer.send(Message("a", b"1"))

    with pytest.raises(ClientStateError) as raised:
        asyncio.run(send())
    assert str(raised.value) in PAGE


def test_the_page_has_ten_errors() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 10
