"""How dead letters are sent again: the options of both commands that do it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.times import rate_per_s


@Parameter(name="*")
@dataclass(frozen=True)
class Redriving:
    """Options of the commands that send dead letters again.

    Parameters
    ----------
    to_topic
        Topic to send to, instead of the topic that each dead letter came from.
    rate
        Messages a second, as 500 or 500/s. Default: as fast as it goes.
    limit
        Most dead letters of each broker. Default: all.
    max_redrives
        Dead letters that were sent again so often stay.
    dry_run
        Only count the dead letters; nothing is sent.
    """

    to_topic: str | None = None
    rate: str | None = None
    limit: int | None = None
    max_redrives: int = 3
    dry_run: Annotated[bool, Parameter(negative=())] = False

    @property
    def options(self) -> dict[str, Any]:
        """The options as ``Admin.dead_letters.redrive`` takes them.

        Raises:
            UsageError: the rate is none.
        """
        return {**asdict(self), "rate": None if self.rate is None else rate_per_s(self.rate)}
