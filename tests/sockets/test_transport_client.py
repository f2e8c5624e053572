"""The client of the remoting protocol: on asyncio, on uvloop, and on the network in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.sockets.transport import (
    ECHO,
    LATE,
    NEVER,
    SILENT,
    SLOW,
    WORLDS,
    Serving,
    World,
    in_memory,
    until,
)

from orbitmq.runtime import Runtime, system_runtime
from orbitmq.transport.client import MAX_IN_FLIGHT, RemotingClient
from orbitmq.transport.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from orbitmq.wire.command import Command


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.param
    return chosen


def test_a_request_without_answer_times_out_and_a_late_answer_is_dropped(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            await serving.ask(Command(ECHO))
            start = runtime.clock.monotonic()
            with pytest.raises(RequestTimeoutError):
                await serving.ask(Command(SILENT), 50)
            assert runtime.clock.monotonic() - start > 0.04
            with pytest.raises(RequestTimeoutError):
                await serving.ask(Command(LATE), 20)
            await asyncio.sleep(0.4)
            assert (await serving.ask(Command(ECHO, body=b"1"))).body == b"1"

    world(test)


def test_timeouts_of_different_length_each_count(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            await serving.ask(Command(ECHO))

            ended: list[int] = []

            async def asked(timeout_ms: int) -> None:
                start = runtime.clock.monotonic()
                with pytest.raises(RequestTimeoutError):
                    await serving.ask(Command(SILENT), timeout_ms)
                ended.append(timeout_ms)
                assert (runtime.clock.monotonic() - start) * 1000 > timeout_ms - 5

            await asyncio.gather(*(asked(timeout_ms) for timeout_ms in (300, 50, 180, 100)))
            # A machine that stands still for a moment may find several of them over at once.
            in_order = ended if world is in_memory else sorted(ended)
            assert in_order == [50, 100, 180, 300]

    world(test)


def test_one_command_sent_twice_at_a_time(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            await serving.ask(Command(ECHO))
            silent = Command(SILENT)
            results = await asyncio.gather(
                *(serving.ask(silent, timeout_ms) for timeout_ms in (20, 80)), return_exceptions=True
            )
            assert [type(result) for result in results] == [RequestTimeoutError] * 2

    world(test)


def test_closing_the_client_fails_who_waits(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            waiting = [asyncio.ensure_future(serving.ask(Command(NEVER))) for _ in range(3)]
            await until(lambda: serving.asked == 3)
            await serving.client.close()
            for one in waiting:
                with pytest.raises(ConnectionLostError):
                    await one
            with pytest.raises(ConnectionLostError):
                await serving.ask(Command(ECHO))

    world(test)


def test_losing_the_server_fails_who_waits_at_once_and_the_next_request_reconnects(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            waiting = asyncio.ensure_future(serving.ask(Command(NEVER), 60_000))
            await until(lambda: serving.asked == 1)
            serving.opened[0].abort()
            with pytest.raises(ConnectionLostError, match="lost while waiting"):
                await waiting
            assert (await serving.ask(Command(ECHO))).code == 0
            assert len(serving.opened) == 2

    world(test)


def test_stopping_the_server_fails_who_waits(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            waiting = asyncio.ensure_future(serving.ask(Command(NEVER), 60_000))
            await until(lambda: serving.asked == 1)
            await serving.server.stop()
            with pytest.raises(ConnectionLostError):
                await waiting
            with pytest.raises(ConnectError):
                await serving.ask(Command(ECHO))

    world(test)


def test_nobody_listens(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            await serving.server.stop()
            results = await asyncio.gather(
                *(serving.ask(Command(ECHO)) for _ in range(3)), return_exceptions=True
            )
            assert [type(result) for result in results] == [ConnectError] * 3
            assert len({id(result) for result in results}) == 3

    world(test)


@pytest.mark.parametrize("address", ["", "nohost", ":123", "h:0", "h:65536", "h:x", "h:-1"])
def test_an_address_that_is_none(address: str) -> None:
    async def main() -> None:
        client = RemotingClient(system_runtime())
        with pytest.raises(ConnectError, match="is not host:port"):
            await client.request(address, Command(ECHO), 100)
        await client.close()

    asyncio.run(main())


@pytest.mark.behaviour("AS-01")
def test_the_limit_of_requests_in_flight(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            serving.client = RemotingClient(runtime, max_async=2)
            fillers = [asyncio.ensure_future(serving.ask(Command(SILENT), 60_000)) for _ in range(2)]
            await until(lambda: serving.asked == 2)
            with pytest.raises(TooManyRequestsError):
                await serving.ask(Command(ECHO), 0)
            with pytest.raises(RequestTimeoutError, match="too many requests in flight"):
                await serving.ask(Command(ECHO), 30)
            # Who waits gets the permit of one that ended.
            waiting = asyncio.ensure_future(serving.ask(Command(ECHO)))
            await asyncio.sleep(0)
            for filler in fillers:
                filler.cancel()
            assert (await waiting).code == 0
            await asyncio.gather(*fillers, return_exceptions=True)

    world(test)


@pytest.mark.behaviour("AS-01")
def test_a_cancelled_waiter_leaves_the_line(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            serving.client = RemotingClient(runtime, max_async=1)
            filler = asyncio.ensure_future(serving.ask(Command(SLOW)))
            await asyncio.sleep(0.005)
            waiter = asyncio.ensure_future(serving.ask(Command(ECHO)))
            last = asyncio.ensure_future(serving.ask(Command(ECHO, body=b"last")))
            await asyncio.sleep(0)
            waiter.cancel()
            assert (await filler).remark == "slept"
            assert (await last).body == b"last"
            assert waiter.cancelled()

    world(test)


@pytest.mark.behaviour("AS-02")
def test_one_way_requests_have_a_limit_of_their_own(world: World) -> None:
    assert MAX_IN_FLIGHT == 65535

    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            serving.client = RemotingClient(runtime, max_async=1, max_oneway=1)
            filler = asyncio.ensure_future(serving.ask(Command(SLOW)))
            await until(lambda: serving.asked == 1)
            for _ in range(5):
                await serving.client.oneway(serving.address, Command(ECHO), 0)
            assert (await filler).remark == "slept"

    world(test)


def test_a_cancelled_request_leaves_nothing_behind(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            serving.client = RemotingClient(runtime, max_async=1)
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(serving.ask(Command(SILENT)), 0.005)
            assert (await serving.ask(Command(ECHO))).code == 0

    world(test)


def test_a_client_whose_server_does_not_read_waits_before_it_writes_more(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        stuck: list[asyncio.Transport] = []

        class Deaf(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                stuck.append(transport)

            def data_received(self, data: bytes) -> None:
                stuck[0].pause_reading()

        listener = await runtime.network.listen(Deaf, "127.0.0.1", 0)
        client = RemotingClient(runtime)
        await client.oneway(f"127.0.0.1:{listener.port}", Command(ECHO), 30_000)  # they have a connection
        big = Command(ECHO, body=bytes(8_000_000))
        results = await asyncio.gather(
            *(client.request(f"127.0.0.1:{listener.port}", big, 500) for _ in range(4)),
            return_exceptions=True,
        )
        assert {type(result) for result in results} == {RequestTimeoutError}
        with pytest.raises(RequestTimeoutError, match="does not read"):
            await client.request(f"127.0.0.1:{listener.port}", big, 50)
        await listener.close()
        for transport in stuck:
            transport.abort()
        await client.close()

    world(test)
