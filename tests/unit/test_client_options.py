"""The options and the public surface of the clients: complete, typed, the same in both kinds."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

import orbitmq
import orbitmq.admin
import orbitmq.sync
from orbitmq import ValidationError
from orbitmq.admin import Admin, Backoff, GroupSettings
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import ClientStateError, UnknownOptionError
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import simulated_runtime

# The names that a user's completion offers. Adding or removing one is a decision, recorded here.
SURFACE = {
    "Producer": "close fault_table flush group queues recall reply request send send_batch send_oneway start "
    "submit",
    "TransactionProducer": "close fault_table flush group queues recall reply request send send_batch "
    "send_in_transaction send_oneway start submit transaction",
    "Consumer": "assignment batches close commit group messages on pause resume run start "
    "subscribe unsubscribe",
    "PullConsumer": "assign assignment close commit committed group max_offset min_offset offset_by_time "
    "pause poll position queues resume seek seek_to_begin seek_to_end start subscribe unsubscribe",
    "Reader": "batches close messages offsets start steps topic",
}
CLASSES = sorted(SURFACE)

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


def methods(kind: type[Any]) -> dict[str, Any]:
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: value for name, value in found.items() if inspect.isroutine(value)}


def yielded(annotation: str) -> str:
    """``X`` of ``Iterator[X]`` or ``AsyncGenerator[X, None]``."""
    return annotation.partition("[")[2].removesuffix("]").removesuffix(", None")


def made(kind: type[Any], **options: Any) -> Any:
    if "Transaction" in kind.__name__:
        options["check"] = lambda message: None
    return kind("group", **options)


@pytest.mark.parametrize("name", CLASSES)
async def test_the_public_surface_is_this(name: str) -> None:
    client = made(getattr(orbitmq, name), runtime=simulated_runtime())
    assert [word for word in dir(client) if not word.startswith("_")] == SURFACE[name].split()
    blocking = made(getattr(orbitmq.sync, name), runtime=simulated_runtime())
    assert [word for word in dir(blocking) if not word.startswith("_")] == SURFACE[name].split()


@pytest.mark.parametrize("name", CLASSES)
def test_the_blocking_clients_have_the_signatures_of_the_core(name: str) -> None:
    core, blocking = getattr(orbitmq, name), getattr(orbitmq.sync, name)
    assert inspect.signature(core) == inspect.signature(blocking)
    assert set(methods(core)) == set(methods(blocking))
    for method, function in methods(core).items():
        ours = inspect.signature(getattr(blocking, method))
        assert ours.parameters == inspect.signature(function).parameters, method
        theirs = inspect.signature(function).return_annotation
        if method == "subscribe":
            continue  # the async method returns an awaitable, the blocking one waits for its result
        if method not in ("submit", "messages", "batches", "steps", "transaction"):
            assert ours.return_annotation == theirs, method
        else:
            assert yielded(ours.return_annotation) == yielded(theirs), method


PARTS = [
    *("BrokerAdmin", "TopicAdmin", "GroupAdmin", "MessageAdmin", "DeadLetterAdmin", "TimerAdmin"),
    *("DefinitionAdmin", "AccessAdmin", "ClientAdmin", "QuotaAdmin"),
]


@pytest.mark.parametrize("name", PARTS)
def test_the_blocking_operations_are_those_of_the_async_admin(name: str) -> None:
    core, blocking = getattr(orbitmq.admin, name), getattr(orbitmq.sync, name)
    assert set(methods(core)) == set(methods(blocking))
    for method, function in methods(core).items():
        assert inspect.signature(getattr(blocking, method)) == inspect.signature(function), method


async def test_the_blocking_admin_has_the_parts_of_the_async_one() -> None:
    core, blocking = Admin(runtime=simulated_runtime()), orbitmq.sync.Admin(runtime=simulated_runtime())
    assert inspect.signature(Admin) == inspect.signature(orbitmq.sync.Admin)
    parts = {name: type(value).__name__ for name, value in vars(core).items() if name[0] != "_"}
    assert sorted(parts.values()) == sorted(PARTS)
    assert parts == {name: type(value).__name__ for name, value in vars(blocking).items() if name[0] != "_"}


@pytest.mark.parametrize("name", [*CLASSES, "Admin", *PARTS])
def test_every_public_method_is_documented_and_typed(name: str) -> None:
    home = orbitmq.admin if name.endswith("Admin") else orbitmq
    for kind in (getattr(home, name), getattr(orbitmq.sync, name)):
        assert inspect.getdoc(kind)
        for method, function in methods(kind).items():
            assert inspect.getdoc(function), f"{kind.__module__}.{name}.{method} has no docstring"
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, method
            for parameter in list(signature.parameters.values())[1:]:
                assert parameter.annotation is not inspect.Parameter.empty, f"{method}: {parameter}"
                assert parameter.annotation not in ("Any", Any), f"{method}: {parameter}"


@pytest.mark.parametrize("name", ["Producer", "Consumer", "PullConsumer", "Reader"])
def test_every_option_is_explained(name: str) -> None:
    kind = getattr(orbitmq, name)
    text = inspect.getdoc(kind) or ""
    for option in inspect.signature(kind).parameters:
        assert f"\n    {option}: " in text, f"{name} does not say what {option} means"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fault_profile": "6.x"}, r"fault_profile must be one of \['4.7', '4.x', '5.x'\], got '6.x'"),
        ({"retries": -1}, "retries must be 0 or more, got -1"),
        ({"async_retries": -1}, "async_retries must be 0 or more, got -1"),
        ({"max_async": 0}, "max_async must be 1 or more, got 0"),
        ({"callback_threads": 65}, "callback_threads must be 0 to 64, got 65"),
        ({"callback_threads": -1}, "callback_threads must be 0 to 64, got -1"),
    ],
)
def test_an_option_out_of_its_range_is_named(options: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        orbitmq.Producer("group", **options)


async def test_a_shared_client_has_its_own_limit(runtime: SimulatedRuntime) -> None:
    client = ClientInstance(runtime, "127.0.0.1:9876", max_async=7)
    with pytest.raises(ValidationError, match="give it to the client that is shared"):
        orbitmq.Producer("group", client=client, max_async=7)


@pytest.mark.parametrize(
    ("name", "wrong", "nearest"),
    [
        ("Producer", "retry", "retries"),
        ("Producer", "timeout_ms", "timeout"),
        ("Consumer", "consume_timeout_s", "consume_timeout"),
        ("PullConsumer", "autocommit", "auto_commit"),
        ("SimpleConsumer", "invisible_s", "invisible_for"),
        ("PullConsumer", "name_server", "name_servers"),
    ],
)
@pytest.mark.parametrize("door", [orbitmq, orbitmq.sync])
def test_an_unknown_option_is_refused_and_the_nearest_named(
    door: Any, name: str, wrong: str, nearest: str
) -> None:
    for error in (ValidationError, TypeError):
        with pytest.raises(error, match=f"there is no option '{wrong}': did you mean '{nearest}'"):
            made(getattr(door, name), **{wrong: 3})


@pytest.mark.parametrize("door", [orbitmq, orbitmq.sync])
@pytest.mark.parametrize("name", [*CLASSES, "SimpleConsumer"])
def test_a_constructor_shows_every_option_with_its_default(door: Any, name: str) -> None:
    first, *options = inspect.signature(getattr(door, name)).parameters.values()
    assert (first.name, first.kind) == ("topic" if name == "Reader" else "group", first.POSITIONAL_OR_KEYWORD)
    for option in options:
        assert option.kind is option.KEYWORD_ONLY
        assert option.annotation is not option.empty
        assert (option.default is option.empty) == (option.name == "check")


@pytest.mark.parametrize("door", [orbitmq, orbitmq.sync])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda door: door.Producer(), "group is missing"),
        (lambda door: door.Reader(), "topic is missing"),
        (lambda door: door.TransactionProducer("group"), "check is missing"),
        (lambda door: door.Consumer("group", "host:9876"), "options are given by name.*'host:9876' has none"),
        (lambda door: door.Consumer("group", group="group"), "options are given by name.*'group' has none"),
    ],
)
def test_an_argument_that_is_missing_or_has_no_name_is_explained(door: Any, make: Any, text: str) -> None:
    for error in (ValidationError, TypeError):
        with pytest.raises(error, match=text):
            make(door)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: orbitmq.AutoBatch(lingr=1), "no option 'lingr': did you mean 'linger'"),  # type: ignore[call-arg]
        (lambda: orbitmq.FlowLimits(message=1), "no option 'message': did you mean 'messages'"),  # type: ignore[call-arg]
        (lambda: GroupSettings(max_retry=3), "no option 'max_retry': did you mean 'max_retries'"),  # type: ignore[call-arg]
        (lambda: Backoff(frist=3), "no option 'frist': did you mean 'first'"),  # type: ignore[call-arg]
        (lambda: Admin(timeot=3), "no option 'timeot': did you mean 'timeout'"),  # type: ignore[call-arg]
        (lambda: Admin("h:1", "h:2"), "options are given by name.*'h:2' has none"),  # type: ignore[call-arg, arg-type]
    ],
)
def test_options_of_nested_classes_and_of_admin_are_refused_alike(make: Any, text: str) -> None:
    with pytest.raises(UnknownOptionError, match=text):
        make()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: orbitmq.Message("t", b"", tag="a"), "no option 'tag': did you mean 'tags'"),  # type: ignore[call-arg]
        (lambda: orbitmq.Message("t", b"", key="a"), "no option 'key': did you mean 'keys'"),  # type: ignore[call-arg]
        (lambda: orbitmq.Message("t", b"", delay_ms=5), "no option 'delay_ms': did you mean 'delay'"),  # type: ignore[call-arg]
        (lambda: orbitmq.ReceivedMessage.retry(None, delay_s=5), "'delay_s': did you mean 'delay'"),  # type: ignore
    ],
)
def test_parameters_of_a_message_are_refused_alike(call: Any, text: str) -> None:
    with pytest.raises(UnknownOptionError, match=text):
        call()


@pytest.mark.parametrize(
    ("name", "method", "wrong", "nearest"),
    [
        ("Producer", "send", "timeout_ms", "timeout"),
        ("Producer", "send", "time_out", "timeout"),
        ("PullConsumer", "poll", "timeout_ms", "timeout"),
        ("PullConsumer", "subscribe", "tag", "tags"),
        ("PullConsumer", "assign", "tag", "tags"),
        ("Consumer", "subscribe", "tag", "tags"),
        ("Consumer", "on", "tag", "tags"),
        ("SimpleConsumer", "receive", "wait_s", "wait"),
        ("SimpleConsumer", "receive", "max_message", "max_messages"),
        ("SimpleConsumer", "retry", "delay_ms", "delay"),
    ],
)
async def test_parameters_of_methods_are_refused_alike(
    name: str, method: str, wrong: str, nearest: str
) -> None:
    client = made(getattr(orbitmq, name))
    arguments = () if method == "poll" else ("t",)

    async def call() -> None:
        await getattr(client, method)(*arguments, **{wrong: 3})

    with pytest.raises(UnknownOptionError, match=f"no option '{wrong}': did you mean '{nearest}'"):
        await call()


def test_an_error_of_kind_inside_a_method_stays_itself() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'body'"):
        orbitmq.Message("t", tags="a")  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [3, b"h:1", [3], {"h:1"}, object()])
def test_name_servers_of_admin_are_a_text_or_a_list_of_them(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="name_servers must be a string or a list of strings"):
        Admin(wrong)


@pytest.mark.parametrize("name", [*CLASSES, "SimpleConsumer"])
def test_a_runtime_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="runtime must be Runtime, got 3"):
        made(getattr(orbitmq, name), runtime=3)


def test_the_group_may_be_given_by_its_name() -> None:
    assert orbitmq.Producer(group="by-name").group == "by-name"


@pytest.mark.parametrize("name", CLASSES)
async def test_a_client_starts_once(name: str) -> None:
    client = made(getattr(orbitmq, name), runtime=simulated_runtime())
    assert isinstance(client.start, types.MethodType)
    await client.start()
    with pytest.raises(ClientStateError, match="group' is started already"):
        await client.start()
    await client.close()
    await client.close()
    with pytest.raises(ClientStateError, match="group' was closed; make a new one"):
        await client.start()
    unused = made(getattr(orbitmq, name), runtime=simulated_runtime())
    await unused.close()
    with pytest.raises(ClientStateError, match="was closed"):
        await unused.start()
