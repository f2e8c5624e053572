"""How dead letters are sent again: the options of both commands that do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.times import rate_per_s

if TYPE_CHECKING:
    from orbitmq.wire.bodies.redrive import RedriveRequest


@Parameter(name="*")
@dataclass(frozen=True)
class Redriving:
    """Options of the commands that send dead letters again.

    Parameters
    ----------
    to_topic
        Where to, instead of the topic that each came from.
    rate
        Messages a second: 500 or 500/s. Without it as fast as it goes.
    limit
        At most so many of each broker.
    max_redrives
        One that was sent again so often stays.
    dry_run
        Only count.
    """

    to_topic: str | None = None
    rate: str | None = None
    limit: int | None = None
    max_redrives: int = 3
    dry_run: Annotated[bool, Parameter(negative=())] = False

    def request(self, group: str, **chosen: Any) -> RedriveRequest:
        """What brokers are asked for.

        Args:
            chosen: fields that say which dead letters.

        Raises:
            UsageError: the rate is none.
        """
        from orbitmq.wire.bodies.redrive import RedriveRequest

        return RedriveRequest(
            group=group,
            to_topic=self.to_topic,
            rate=None if self.rate is None else rate_per_s(self.rate),
            limit=self.limit,
            max_redrives=self.max_redrives,
            dry_run=self.dry_run,
            **chosen,
        )
