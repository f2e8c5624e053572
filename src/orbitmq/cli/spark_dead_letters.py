"""``orbitmq spark dlq | retry | redrive``: what failed, as tables, and once more."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common
from orbitmq.cli.spark import app
from orbitmq.cli.spark_running import Spark, run_job, span
from orbitmq.cli.times import rate_per_s


@app.command
def dlq(
    group: str,
    /,
    *,
    by: str = "origin_topic,reason",
    where: str | None = None,
    begin: Annotated[str | None, Parameter(name=["--from"])] = None,
    end: Annotated[str | None, Parameter(name=["--to"])] = None,
    master: str = "local[*]",
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Count the dead letters of a group by topic, reason or whatever SQL finds in them.

    Parameters
    ----------
    group
        Whose.
    by
        SQL expressions, separated by commas, over broker, queue_offset, dead_since, origin_topic, origin_id,
        reason, client, redrives, deliveries, message_id, tags, keys, text (the body) and properties.
    where
        Only those that this SQL expression chooses.
    begin
        Only those that became dead letters from then on:
        a time (2026-11-21T14:00, UTC) or how long ago (10m).
    end
        Only those that became dead letters before.
    master
        Of Spark.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    wanted = span(begin, end)
    return run_job(
        "dlq",
        lambda s, tell: tables.summarised(
            s, tables.dead_letters(s, group, common.addresses, span=wanted), expressions(by), "dead_since",
            sql=where, tell=tell,
        ),
        Spark(master=master),
        common,
    )  # fmt: skip


@app.command
def retry(
    group: str,
    /,
    *,
    by: str = "state,origin_topic,deliveries",
    where: str | None = None,
    begin: Annotated[str, Parameter(name=["--from"])] = "3h",
    master: str = "local[*]",
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Count the messages that wait for another try of a group, and since when.

    Parameters
    ----------
    group
        Whose.
    by
        SQL expressions, separated by commas, over state, broker, queue_offset, waits_since, origin_topic,
        deliveries, message_id, tags, keys, text (the body) and properties.
    where
        Only those that this SQL expression chooses.
    begin
        Delayed ones: only those that were delayed since then.
    master
        Of Spark.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    wanted = span(begin, None)
    return run_job(
        "retry",
        lambda s, tell: tables.summarised(
            s, tables.retries(s, group, common.addresses, span=wanted), expressions(by), "waits_since",
            sql=where, tell=tell,
        ),
        Spark(master=master),
        common,
    )  # fmt: skip


@app.command
def redrive(
    group: str,
    /,
    *,
    where: str | None = None,
    begin: Annotated[str | None, Parameter(name=["--from"])] = None,
    end: Annotated[str | None, Parameter(name=["--to"])] = None,
    to_topic: str | None = None,
    rate: str | None = None,
    limit: int | None = None,
    max_redrives: int = 3,
    spark: Spark = Spark(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Choose dead letters with SQL and let the brokers send them again; none is sent twice.

    Parameters
    ----------
    group
        Whose.
    where
        A SQL expression over the columns that dlq has.
    begin
        Only those that became dead letters from then on:
        a time (2026-11-21T14:00, UTC) or how long ago (10m).
    end
        Only those that became dead letters before.
    to_topic
        Where to, instead of the topic that each came from.
    rate
        Messages a second: 500 or 500/s. Without it as fast as it goes.
    limit
        At most so many of each broker.
    max_redrives
        One that was sent again so often stays.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables
    from orbitmq.wire.bodies import RedriveRequest

    request = RedriveRequest(
        group=group,
        to_topic=to_topic,
        rate=None if rate is None else rate_per_s(rate),
        limit=limit,
        max_redrives=max_redrives,
        dry_run=spark.dry_run,
    )
    wanted = span(begin, end)
    return run_job(
        "redrive",
        lambda s, tell: tables.redrive(
            s, group, common.addresses, sql=where, request=request, span=wanted, tell=tell
        ),
        spark,
        common,
    )


def expressions(text: str) -> list[str]:
    """SQL expressions separated by commas that are not inside parentheses or quotes."""
    found, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        else:
            depth += (character == "(") - (character == ")")
            if character == "," and not depth:
                found.append("")
                continue
        found[-1] += character
    return [one.strip() for one in found if one.strip()]
