"""The Spark jobs against any broker: archive, audit, replay, dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.interop.spark_cells import new_topic, numbers, send, spark, table
from tests.interop.world import Place, World, check, equal

from orbitmq import ConsumeFrom
from orbitmq.spark import jobs
from orbitmq.sync import Consumer

LETTERS = 9
VISIBLE_S = 30.0


def consumed(
    place: Place, topic: str, group: str, handle: Callable[[Any, int], None], count: int, **options: Any
) -> None:
    """``handle`` each message with its number."""
    with Consumer(
        group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST, trace=True, **options
    ) as consumer:
        consumer.subscribe(topic)
        for done, message in enumerate(consumer, 1):
            handle(message, int(message.body))
            if done == count:
                break


def archive(world: World, place: Place) -> None:
    """Archived in two runs, complete by its names, the same as the topic, and replayed once."""
    topic, again = new_topic(world, place, "job_kept"), new_topic(world, place, "job_again")
    to = str(world.folder / world.fresh("job-archive"))
    job = jobs.ArchiveJob([topic], to, place.ns)
    for some in (range(120), range(120, 200)):
        send(place.ns, topic, some)
        equal(jobs.archive(spark(), job).facts["messages"], len(some), "archived")
    report = jobs.verify(to, footers=True)
    check(report.ok and report.facts["messages"] == 200, report.summary)
    audited = jobs.audit(spark(), jobs.AuditJob(topic, place.ns, archive=to))
    check(audited.ok, audited.summary)
    replayed = jobs.replay(spark(), jobs.ReplayJob(to, again, place.ns, tags="odd"))
    equal(replayed.facts["messages"], 100, "replayed")
    resumed = jobs.replay(spark(), jobs.ReplayJob(to, again, place.ns, resume=replayed.facts["run"]))
    equal(resumed.facts["messages"], 100, "what the run has not sent")
    equal(numbers(table(place.ns, again)), list(range(200)), "replayed once")


def dead_letters(world: World, place: Place) -> None:
    """Chosen with SQL, sent again once by whom it may be: the broker's redrive, or Spark."""
    topic, group = new_topic(world, place, "job_bills"), world.fresh("job_billing")
    send(place.ns, topic, range(LETTERS))

    def reject(message: Any, n: int) -> None:
        message.reject(("even", "odd")[n % 2])

    consumed(place, topic, group, reject, LETTERS, max_reconsume_times=0)
    deadline = time.monotonic() + VISIBLE_S
    while (found := jobs.dead_letters(spark(), group, place.ns).count()) < LETTERS:
        check(time.monotonic() < deadline, f"{found} of {LETTERS} dead letters")
        time.sleep(1)
    letters = jobs.dead_letters(spark(), group, place.ns)
    equal({row["origin_topic"] for row in letters.collect()}, {topic}, "origin")
    odd = "int(text) % 2 = 1"
    dry = jobs.redrive(spark(), group, place.ns, sql=odd, dry_run=True)
    check(dry.summary.startswith("4 of 4"), dry.summary)
    sent = [jobs.redrive(spark(), group, place.ns, sql=odd).facts["sent"] for _ in range(2)]
    equal(sent, [4, 0], "sent again")
    equal(numbers(table(place.ns, topic)), sorted([*range(LETTERS), 1, 3, 5, 7]), "the topic")


PLACE_CELLS: dict[str, Callable[[World, Place], None]] = {
    "spark job archive": archive,
    "spark job dead letters": dead_letters,
}
