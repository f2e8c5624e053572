"""``orbitmq spark dlq | redrive``: dead letters counted by SQL, and sent again."""

from __future__ import annotations

from orbitmq.cli.app import Common
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.spark import app
from orbitmq.cli.spark_running import Spark, run_job, span
from orbitmq.cli.times import Between


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
        Consumer group whose dead letters are counted.
    by
        SQL expressions, separated by commas, over broker, queue_offset, dead_since, origin_topic, origin_id,
        reason, client, redrives, deliveries, message_id, tags, keys, text (the body) and properties.
    where
        Count only those for which this expression in Spark's SQL is true.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    keys, wanted = expressions(by), span(between)
    tables.check(group, common.addresses)
    return run_job(
        "dlq",
        lambda s, tell: tables.summarised(
            s, tables.dead_letters(s, group, common.addresses, span=wanted), keys, sql=where, tell=tell
        ),
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
        Consumer group whose dead letters are sent again.
    where
        Send only those for which this expression in Spark's SQL is true; its columns are those of dlq.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables
    from orbitmq.wire.bodies.redrive import RedriveRequest

    request, wanted = RedriveRequest(**how.options), span(between)
    tables.check(group, common.addresses)
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
