"""``@command``: turns a function that returns a view into a command."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, NewType, get_type_hints

from cyclopts import Parameter

from orbitmq.cli.app import flag, run_async
from orbitmq.cli.failures import EXIT_OK
from orbitmq.cli.view import Line, Screen, View
from orbitmq.cli.where import clusters_of, servers_of

# Addresses of name servers, for jobs on Spark, which take keys and TLS from the environment.
Addresses = NewType("Addresses", str)
# The result type of a command that is an async generator.
Views = AsyncGenerator[View | Line, None]

# The types with which a command's first parameter may be annotated.
FIRST = ("Admin", "Servers", "Addresses", "Clusters")
JSON = Annotated[bool, flag("Print JSON: one object, or of a stream one object a line.")]
NAME_SERVERS = Annotated[
    str | None,
    Parameter(
        name=["--name-servers", "-n"],
        help="Addresses of the name servers, host:port;host:port, or of a list of them: "
        "http://host:8080/path or dns://name:port. Default: $NAMESRV_ADDR, else those of the current "
        "context, else 127.0.0.1:9876.",
    ),
]
CONTEXT = Annotated[
    str | None,
    Parameter(
        name=["--context"],
        help="Work on the cluster of this context, with its keys; 'orbitmq context list' shows them. "
        "Default: $ORBITMQ_CONTEXT.",
    ),
]
CONTEXTS = Annotated[
    list[str] | None,
    Parameter(
        name=["--context"],
        negative=(),
        help="Work on the cluster of this context, with its keys; several times for several clusters. "
        "Default: $ORBITMQ_CONTEXT.",
    ),
]
ALL_CONTEXTS = Annotated[bool, flag("Work on the clusters of all contexts.")]


def command(work: Callable[..., Any]) -> Callable[..., int]:
    """Turn ``work`` into a command with its parameters and ``--json``.

    The first parameter of ``work`` may be an open ``Admin``, the name servers as ``Servers`` or
    ``Addresses``, or several clusters as ``Clusters``; the command line has ``--name-servers`` and
    ``--context`` in its place. ``work`` returns a view, or an awaitable of one, or is an async generator of
    views and lines, each of which is shown at once.
    """
    own = list(inspect.signature(work).parameters.values())
    needs = str(own[0].annotation) if own and own[0].annotation in FIRST else ""
    waits = inspect.iscoroutinefunction(work) or work.__annotations__["return"] != "View"

    def run(
        *arguments: Any,
        json: bool = False,
        name_servers: str | None = None,
        context: Any = None,
        all_contexts: bool = False,
        **options: Any,
    ) -> int:
        first: list[Any] = []
        if needs == "Clusters":
            first = [clusters_of(name_servers, context, every=all_contexts)]
        elif needs:
            servers = servers_of(name_servers, context, with_keys=needs != "Addresses")
            first = [servers.addresses if needs == "Addresses" else servers]
        if waits:
            return run_async(_run(work, needs == "Admin", [*first, *arguments], options, as_json=json))
        view: View = work(*first, *arguments, **options)
        return view.show(as_json=json)

    hints = get_type_hints(work, localns={"Admin": object}, include_extras=True)
    parameters = [one.replace(annotation=hints[one.name]) for one in own[bool(needs) :]]
    shared: dict[str, tuple[Any, Any]] = {}
    if needs:
        shared = {"name_servers": (NAME_SERVERS, None), "context": (CONTEXT, None)}
    if needs == "Clusters":
        shared |= {"context": (CONTEXTS, None), "all_contexts": (ALL_CONTEXTS, False)}
    for name, (hint, default) in {**shared, "json": (JSON, False)}.items():
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hint))
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    run.__name__, run.__doc__, run.__module__ = work.__name__, work.__doc__, work.__module__
    return run


async def _run(
    work: Callable[..., Any], opens: bool, arguments: list[Any], options: dict[str, Any], *, as_json: bool
) -> int:
    """Run the command and show its result; returns the exit code. ``opens``: the command's first parameter is
    an Admin.
    """
    async with AsyncExitStack() as stack:
        if opens:
            from orbitmq.admin import Admin

            arguments[0] = await stack.enter_async_context(Admin(**arguments[0].options))
        made = work(*arguments, **options)
        if not isinstance(made, AsyncGenerator):
            view: View = await made
            return view.show(as_json=as_json)
        code = EXIT_OK
        screen = stack.enter_context(Screen(as_json=as_json))
        async for one in await stack.enter_async_context(aclosing(made)):
            code = max(code, screen.show(one))
        return code
