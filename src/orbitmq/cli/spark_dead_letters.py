"""``orbitmq spark dlq | retry | redrive``: what failed, as tables, and once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.spark import app
from orbitmq.cli.spark_running import Spark, run_job, span
from orbitmq.cli.times import Between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@app.command
def dlq(
    group: str,
    /,
    *,
    by: str = "origin_topic,reason",
    where: str | None = None,
    between: Between = Between(),  # noqa: B008 - immutable
    spark: Spark = Spark(),  # noqa: B008 - immutable
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
    """
    from orbitmq.spark.jobs import dead_letters

    wanted = span(between)

    def letters(session: SparkSession) -> DataFrame:
        return dead_letters(session, group, common.addresses, span=wanted)

    return _summarised("dlq", letters, by, "dead_since", where, spark, common)


@app.command
def retry(
    group: str,
    /,
    *,
    by: str = "state,origin_topic,deliveries",
    where: str | None = None,
    begin: Annotated[str, Parameter(name=["--from"])] = "3h",
    spark: Spark = Spark(),  # noqa: B008 - immutable
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
    """
    from orbitmq.spark.jobs import retries

    wanted = span(Between(begin))

    def waiting(session: SparkSession) -> DataFrame:
        return retries(session, group, common.addresses, span=wanted)

    return _summarised("retry", waiting, by, "waits_since", where, spark, common)


def _summarised(
    name: str,
    frame: Callable[[SparkSession], DataFrame],
    by: str,
    since: str,
    where: str | None,
    spark: Spark,
    common: Common,
) -> int:
    """Count the rows of ``frame(session)`` by the expressions ``by``."""
    from orbitmq.spark.jobs.dead_letter_tables import summarised

    keys = expressions(by)
    return run_job(
        name,
        lambda s, tell: summarised(s, frame(s), keys, since, sql=where, job=name, tell=tell),
        spark,
        common,
    )


@app.command
def redrive(
    group: str,
    /,
    *,
    where: str | None = None,
    between: Between = Between(),  # noqa: B008 - immutable
    how: Redriving = Redriving(),  # noqa: B008 - immutable
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
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    request, wanted = how.request(group), span(between)
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
