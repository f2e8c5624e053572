"""The state of an archive and its topics when a run begins, from the brokers that answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import max_offset
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.jobs.archive_names import resume_at
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.options import read_options
from orbitmq.spark.read.positions import KnownOffsets, Positions

if TYPE_CHECKING:
    from orbitmq.spark.jobs.archiving import ArchiveJob

NOT_SHOWN = "is in the archive, but the name servers do not show it"


class LeftOut(NamedTuple):
    """A broker or a topic that a run leaves out, and the reason."""

    broker: str | None
    topic: str | None
    reason: str

    @property
    def name(self) -> str:
        """The broker or the topic, as a sentence names it."""
        return self.broker or f"topic {self.topic}"

    def as_json(self) -> dict[str, str | None]:
        """The fields of the JSON that all commands have for it; the address is unknown."""
        return self._asdict() | {"address": None}


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The begin and the end of a run.

    Attributes:
        archived: the offset after the last archived message of each queue, from the names of the files.
        ends: the present ends of queues whose brokers answer.
        begins: the offsets at which the run begins in these queues.
        left_out: the brokers and topics whose queues are not among ``ends``.
        not_shown: brokers with messages in the archive that are missing from the routes of these topics: they
            are either away or retired.
    """

    archived: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]
    begins: Mapping[MessageQueue, int]
    left_out: Sequence[LeftOut]
    not_shown: Sequence[LeftOut]

    @property
    def rows(self) -> int:
        """The number of messages to archive."""
        return sum(end - self.begins[queue] for queue, end in self.ends.items())

    @property
    def target(self) -> Offsets:
        """The end of the run, for the planner of its batches."""
        return Offsets(self.ends, begins=self.begins)

    @property
    def resume(self) -> Offsets | None:
        """The begin of a run without a checkpoint, from the names of the files; ``None`` if there are no
        files.
        """
        return Offsets({**self.begins, **self.archived}) if self.archived else None

    @property
    def remarks(self) -> list[str]:
        """A line for each broker and topic that is left out."""
        left = [f"{one.name} is left to the next run: {one.reason}" for one in self.left_out]
        shown = [f"{one.name} {one.reason}" for one in self.not_shown]
        return left + shown


def look(job: ArchiveJob, *, patient: bool = True) -> ArchiveState:
    """Ask the brokers for the state; needs no Spark.

    Args:
        patient: wait for every broker (``offsetTimeout``, 60 s), not only for the first answer.

    Raises:
        TopicNotFoundError: no name server has a topic, and the archive has no messages of it.
        UnreachableError: no broker answers.
    """
    positions = Positions(read_options(job.read_options()))
    told = positions.where_in_time(max_offset, every_broker=patient)
    archived = _archived(job)
    _check_missing(told, archived)
    firsts = positions.first_of(told.offsets.keys() - archived.keys())
    ends = {queue: end for queue, end in told.offsets.items() if queue in archived or queue in firsts}
    begins = {queue: min(archived.get(queue, firsts.get(queue, 0)), end) for queue, end in ends.items()}
    silent = {name: str(error) for name, error in told.silent.items()}
    for queue in told.offsets.keys() - ends.keys():
        silent.setdefault(queue.broker_name, "it fell silent")
    left_out = [LeftOut(name, None, reason) for name, reason in sorted(silent.items())]
    left_out += [LeftOut(None, name, str(error)) for name, error in sorted(told.missing.items())]
    shown = {(queue.topic, queue.broker_name) for queue in told.offsets}
    not_shown = {
        queue.broker_name
        for queue in archived
        if queue.topic not in told.missing
        and queue.broker_name not in silent
        and (queue.topic, queue.broker_name) not in shown
    }
    away = [LeftOut(name, None, NOT_SHOWN) for name in sorted(not_shown)]
    return ArchiveState(archived, ends, begins, left_out, away)


def check_topics(job: ArchiveJob) -> None:
    """Check that a run can begin, as soon as one broker answers. Errors as with :func:`look`."""
    told = Positions(read_options(job.read_options())).where_in_time(max_offset, every_broker=False)
    if told.missing:
        # The archive is listed only in this case, since that takes a while in an object store.
        _check_missing(told, _archived(job))


def _archived(job: ArchiveJob) -> dict[MessageQueue, int]:
    found = resume_at(Folder(job.to).archive_files())
    return {queue: at for queue, at in found.items() if queue.topic in job.topics}


def _check_missing(told: KnownOffsets, archived: Mapping[MessageQueue, int]) -> None:
    for topic, error in told.missing.items():
        if not any(queue.topic == topic for queue in archived):
            raise error  # the topic never existed: the name may be wrong
