"""``orbitmq quota``: what users, addresses and topics may send and receive a second."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.partial import done
from orbitmq.cli.view import Table, View, same
from orbitmq.wire.bodies.quota import MAX_RATE

if TYPE_CHECKING:
    from orbitmq.admin import Admin

app = make_app(
    "quota",
    "Quotas: how many bytes and messages a second a user, an address or a topic may send and receive. Who is "
    "over it is not read for a while, without an error.",
    """
orbitmq quota set --user app --in 20MB/s --out 2000msg/s
orbitmq quota set --topic orders --in 500msg/s --in 1MB/s
orbitmq quota list
orbitmq quota delete --user app
""",
)

_FACTORS: Final = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 2**10, "MiB": 2**20}
User = Annotated[str | None, Parameter(help="Name of the user; needs brokers that require keys.")]
Address = Annotated[str | None, Parameter(help="IP address of clients.")]
Topic = Annotated[str | None, Parameter(help="Name of the topic.")]
Rates = Annotated[tuple[str, ...], Parameter(negative=())]


@app.command(name="set")
@command
async def set_quota(
    admin: Admin,
    /,
    *,
    user: User = None,
    address: Address = None,
    topic: Topic = None,
    in_: Annotated[Rates, Parameter(name=["--in"])] = (),
    out: Annotated[Rates, Parameter(name=["--out"])] = (),
) -> View:
    """Set a quota at all brokers; it replaces an earlier one. Every broker counts on its own.

    Args:
        in_: Most that clients may send: 20MB/s, 500msg/s, or both (twice --in).
        out: Most that clients may receive.
    """
    kind, name = _about(user, address, topic)
    (bytes_in, messages_in), (bytes_out, messages_out) = _rates("--in", in_), _rates("--out", out)
    if not any((bytes_in, messages_in, bytes_out, messages_out)):
        raise UsageError("give --in or --out, as --in 20MB/s")
    limits = {
        "bytes_in": bytes_in,
        "messages_in": messages_in,
        "bytes_out": bytes_out,
        "messages_out": messages_out,
    }
    brokers, left_out = await done(admin.quotas.set(kind, name, **limits))
    line = f"{kind} {name} has a quota at {', '.join(brokers)}"
    return View({"kind": kind, "name": name, **limits, "brokers": brokers}, lines=[line], left_out=left_out)


@app.command(name="list")
@command
async def list_quotas(admin: Admin, /) -> View:
    """Show the quotas of each broker, and how often a client was not read for a while. 0: no limit."""
    answer = await admin.quotas.list()
    rows = [
        {
            "kind": one.kind,
            "name": one.name,
            "bytes_in": one.bytes_in,
            "messages_in": one.messages_in,
            "bytes_out": one.bytes_out,
            "messages_out": one.messages_out,
            "pauses_in": one.pauses_in,
            "pauses_out": one.pauses_out,
            "broker": one.broker_name,
        }
        for one in answer.found
    ]
    columns = same(
        "kind", "name", "bytes_in", "messages_in", "bytes_out", "messages_out", "pauses_in", "pauses_out",
        "broker",
    )  # fmt: skip
    return View({}, [Table("quotas", rows, columns)], left_out=answer.left_out, missing="its quotas are")


@app.command
@command
async def delete(admin: Admin, /, *, user: User = None, address: Address = None, topic: Topic = None) -> View:
    """Remove a quota at all brokers."""
    kind, name = _about(user, address, topic)
    brokers, left_out = await done(admin.quotas.delete(kind, name))
    line = f"{kind} {name} has no quota at {', '.join(brokers)}"
    return View({"kind": kind, "name": name, "brokers": brokers}, lines=[line], left_out=left_out)


def _about(user: str | None, address: str | None, topic: str | None) -> tuple[str, str]:
    given = [
        (kind, name)
        for kind, name in (("user", user), ("address", address), ("topic", topic))
        if name is not None
    ]
    if len(given) != 1:
        raise UsageError("give one of --user, --address and --topic")
    return given[0]


def _rates(option: str, texts: tuple[str, ...]) -> tuple[int, int]:
    """Parse limits; returns bytes and messages per second."""
    size = messages = 0
    for text in texts:
        found = re.fullmatch(r"([0-9]{1,15})(msg|[A-Za-z]+)/s", text)
        unit = found[2] if found else ""
        if found is None or (unit != "msg" and unit not in _FACTORS) or not int(found[1]):
            raise UsageError(f"{option} {text}: expected as 20MB/s (B, KB, MB, GB, KiB, MiB) or 2000msg/s")
        if unit == "msg":
            if messages:
                raise UsageError(f"{option}: messages a second are given twice")
            messages = int(found[1])
        else:
            if size:
                raise UsageError(f"{option}: bytes a second are given twice")
            size = int(found[1]) * _FACTORS[unit]
        if max(size, messages) > MAX_RATE:
            raise UsageError(f"{option} {text}: expected at most {MAX_RATE} a second")
    return size, messages
