"""One command that asks a cluster: opens Admin, runs the coroutine, shows its view."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from orbitmq.cli.app import Common, run_async
from orbitmq.cli.view import View

if TYPE_CHECKING:
    from orbitmq.admin import Admin

P = ParamSpec("P")
T = TypeVar("T")


def command(work: Callable[Concatenate[Admin, P], Awaitable[View]]) -> Callable[..., int]:
    """Make a command that takes the parameters of ``work`` and those of :class:`~orbitmq.cli.app.Common`.

    Its first parameter, the open ``Admin``, is not one of the command line.
    """

    def run(*arguments: Any, common: Common = Common(), **options: Any) -> int:  # noqa: B008 - immutable
        view = asked(common, lambda admin: work(admin, *arguments, **options))
        return view.show(as_json=common.json)

    hints = get_type_hints(work, localns={"Admin": object}, include_extras=True)
    _, *own = inspect.signature(work).parameters.values()
    parameters = [one.replace(annotation=hints[one.name]) for one in own]
    last = inspect.Parameter("common", inspect.Parameter.KEYWORD_ONLY, default=Common(), annotation=Common)
    run.__signature__ = inspect.Signature([*parameters, last], return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*parameters, last]} | {"return": int}
    run.__name__, run.__doc__, run.__module__ = work.__name__, work.__doc__, work.__module__
    return run


def asked(common: Common, work: Callable[[Admin], Awaitable[T]]) -> T:
    """What ``work`` returns with an open Admin."""

    async def opened() -> T:
        from orbitmq.admin import Admin

        async with Admin(common.addresses) as admin:
            return await work(admin)

    return run_async(opened())
