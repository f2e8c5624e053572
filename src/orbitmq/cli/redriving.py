"""The options that both commands for sending dead letters again have."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cyclopts import Parameter

from orbitmq.cli.app import DryRun
from orbitmq.cli.times import rate_per_s


@Parameter(name="*")
@dataclass(frozen=True)
class Redriving:
    """Options of the commands that send dead letters again.

    Attributes:
        to_topic: Topic to send to, instead of the topic that each dead letter came from.
        rate: Messages a second, as 500 or 500/s. Default: no limit.
        limit: Most dead letters of each broker that are sent. Default: all.
        max_redrives: Leave dead letters that were sent again this many times.
    """

    to_topic: str | None = None
    rate: str | None = None
    limit: int | None = None
    max_redrives: int = 3
    dry_run: DryRun = False

    @property
    def options(self) -> dict[str, Any]:
        """The options as keyword arguments of ``Admin.dead_letters.redrive``.

        Raises:
            UsageError: the rate is not a number of messages a second.
        """
        return {**asdict(self), "rate": None if self.rate is None else rate_per_s(self.rate)}
