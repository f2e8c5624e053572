"""The options of the data source: names, types, defaults. Unknown names are an error.

Spark passes option names in lower case, so names are compared in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from orbitmq.client.core.identity_names import VARIABLES
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import SQL92, TAG
from orbitmq.spark import option_values as values_of
from orbitmq.spark import spellings
from orbitmq.spark.cluster.places import AtTime, Place, Start, offsets_of, queues_of, times_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from orbitmq.spark.cluster.routes import QueueAddresses
    from orbitmq.transport.identity import Identity

# Options that Spark itself adds to the user's.
_SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
_GIB = 1 << 30
MAX_BYTES_PER_TRIGGER = 2 * _GIB
# A person waits for a batch read, so it soon reports an unreachable cluster; tasks try for longer.
BATCH_PLAN_TIMEOUT_MS = 6_000
# The group in pull requests if no groupId is given.
READER_GROUP = "orbitmq-spark"
# The values of the option delivery: what a writer promises.
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader. Times are milliseconds, sizes bytes.

    Attributes:
        topics: the names of the topics; with ``assigned`` the topics of those queues, empty with
            ``topic_pattern``.
        topic_pattern: a regular expression for whole names of topics.
        assigned: read only these queues; ``None`` for all queues of the topics.
        sql: keep only messages whose properties match this SQL92 expression; ``None`` for no filter.
        group_id: the group under which progress is published; ``None`` if it is not published.
        value_format: the type of the body: ``binary`` or ``string``.
        push_filters: whether a batch read takes over Spark's filters; ``None``: the session decides.
        time_strategy: the behaviour if the start time is later than all messages of a topic: ``error`` or
            ``latest``.
        plan_timeout_ms: like ``offset_timeout_ms``, for the planning of a query before its first read.
        is_stream: the read is a stream, which a silent broker does not end while another broker answers.
        identity: keys and TLS, from the options or the driver's environment; ``None`` if there are none.
    """

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assigned: frozenset[MessageQueue] | None = None
    name_servers: tuple[str, ...] = ("127.0.0.1:9876",)
    columns: tuple[str, ...] = ()
    tags: str = "*"
    sql: str | None = None
    group_id: str | None = None
    starting: Place = Start.EARLIEST
    ending: Place = Start.LATEST
    time_strategy: str = "error"
    max_rows: int | None = None
    min_rows: int | None = None
    max_bytes: int = MAX_BYTES_PER_TRIGGER
    max_delay_ms: int = 900_000
    max_rows_per_task: int | None = None
    max_bytes_per_task: int = _GIB // 4
    fail_on_loss: bool = True
    on_bad_message: str = "fail"
    properties: str = "none"
    value_format: str = "binary"
    push_filters: bool | None = None
    parallelism: int | None = None
    batch_bytes: int = 4 << 20
    pull_messages: int = 1024
    pull_depth: int = 16
    request_timeout_ms: int = 10_000
    offset_timeout_ms: int = 60_000
    plan_timeout_ms: int = 60_000
    is_stream: bool = False
    identity: Identity | None = None

    @property
    def consumer_group(self) -> str:
        """The group named in requests to brokers."""
        return self.group_id or READER_GROUP

    @property
    def has_limits(self) -> bool:
        """Whether the options limit the size of a stream's batches."""
        return (self.max_rows, self.min_rows, self.max_bytes) != (None, None, MAX_BYTES_PER_TRIGGER)

    @property
    def subscription(self) -> tuple[str, str]:
        """The filter for the brokers and its language, ``TAG`` or ``SQL92``."""
        return (self.tags, TAG) if self.sql is None else (self.sql, SQL92)

    @property
    def is_filtered(self) -> bool:
        """Whether brokers filter messages, so that their answers skip offsets."""
        return self.subscription != ("*", TAG)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer. Times are milliseconds.

    Attributes:
        delivery: ``at-least-once`` or ``exactly-once``; ``None``: exactly once if there is a folder for the
            state, otherwise, as in a batch job that names none, at least once.
        state_location: the folder of the state.
        checkpoint: the folder of Spark's checkpoint, if the options of a stream name it.
        routes: the driver's route of the topic in the option topic, for tasks while no name server answers.
        identity: keys and TLS, from the options or the driver's environment; ``None`` if there are none.
    """

    topic: str | None = None
    name_servers: tuple[str, ...] = ("127.0.0.1:9876",)
    producer_group: str = "orbitmq-spark"
    delivery: str | None = None
    state_location: str | None = None
    checkpoint: str | None = None
    batch_bytes: int = 256 << 10
    pipeline: int = 8
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000
    routes: Mapping[str, QueueAddresses] = field(default_factory=dict)
    identity: Identity | None = None

    @property
    def is_exact(self) -> bool:
        """Whether each row has to be stored exactly once."""
        return self.delivery != AT_LEAST_ONCE


class _Option(NamedTuple):
    name: str
    field: str
    parse: Callable[[str], Any]


# These options are checked together, and error texts never contain their values.
_IDENTITY = tuple(_Option(name, name, str) for name in VARIABLES)

_READ = (
    _Option("topic", "topics", values_of.topics),
    _Option("topicPattern", "topic_pattern", values_of.pattern),
    _Option("assign", "assigned", queues_of),
    _Option("nameServers", "name_servers", values_of.addresses),
    _Option("columns", "columns", values_of.names),
    _Option("tags", "tags", values_of.text),
    _Option("sql", "sql", values_of.text),
    _Option("pushFilters", "push_filters", values_of.boolean),
    _Option("groupId", "group_id", values_of.group),
    _Option("startingOffsets", "starting", offsets_of),
    _Option("startingTimestamp", "starting_at_ms", values_of.instant_ms),
    _Option("startingOffsetsByTimestamp", "starting_times", times_of),
    _Option("startingTimestampStrategy", "time_strategy", values_of.one_of("error", "latest")),
    _Option("endingOffsets", "ending", offsets_of),
    _Option("endingTimestamp", "ending_at_ms", values_of.instant_ms),
    _Option("endingOffsetsByTimestamp", "ending_times", times_of),
    _Option("maxRowsPerTrigger", "max_rows", values_of.count),
    _Option("maxBytesPerTrigger", "max_bytes", values_of.size_bytes),
    _Option("minRowsPerTrigger", "min_rows", values_of.count),
    _Option("maxTriggerDelay", "max_delay_ms", values_of.duration_ms),
    _Option("failOnDataLoss", "fail_on_loss", values_of.boolean),
    _Option("onBadMessage", "on_bad_message", values_of.one_of("fail", "null", "raw")),
    _Option("properties", "properties", values_of.one_of("none", "map", "raw")),
    _Option("valueFormat", "value_format", values_of.value_format),
    _Option("parallelism", "parallelism", values_of.count),
    _Option("maxRowsPerTask", "max_rows_per_task", values_of.count),
    _Option("maxBytesPerTask", "max_bytes_per_task", values_of.size_bytes),
    _Option("batchBytes", "batch_bytes", values_of.size_bytes),
    _Option("pullMessages", "pull_messages", values_of.count),
    _Option("pullDepth", "pull_depth", values_of.count),
    _Option("requestTimeout", "request_timeout_ms", values_of.duration_ms),
    _Option("offsetTimeout", "offset_timeout_ms", values_of.duration_ms),
    *_IDENTITY,
)

_WRITE = (
    _Option("topic", "topic", values_of.topic),
    _Option("nameServers", "name_servers", values_of.addresses),
    _Option("producerGroup", "producer_group", values_of.group),
    _Option("delivery", "delivery", values_of.one_of(AT_LEAST_ONCE, EXACTLY_ONCE)),
    _Option("stateLocation", "state_location", values_of.folder),
    _Option("batchBytes", "batch_bytes", values_of.size_bytes),
    _Option("pipeline", "pipeline", values_of.count),
    _Option("requestTimeout", "request_timeout_ms", values_of.duration_ms),
    _Option("retryTimeout", "retry_timeout_ms", values_of.duration_ms),
    *_IDENTITY,
)


def option_names() -> tuple[str, ...]:
    """The names of all options, for reading and for writing."""
    return tuple(dict.fromkeys(option.name for option in (*_READ, *_WRITE)))


def _parse(options: Mapping[str, str], known: tuple[_Option, ...], what: str) -> dict[str, Any]:
    table = {option.name.lower(): option for option in known}
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, text in options.items():
        lower = key.lower()
        option = table.get(spellings.ours(key, what))
        if option is None:
            if lower in _SPARK_OWN:
                continue
            raise OptionError(spellings.unknown(key, what, [entry.name for entry in known]))
        if option.name in spelled:
            raise OptionError(f"options {spelled[option.name]} and {key} are the same: give one of them")
        spelled[option.name] = key
        try:
            values[option.field] = option.parse(text)
        except ValueError as error:
            # Spark passes option names in lower case; the error shows the usual spelling.
            name = option.name if lower == option.name.lower() else key
            raise OptionError(f"option {name}={text!r} {error}") from error
    given = {name: values.pop(name) for name in VARIABLES if name in values}
    values["identity"] = _identity(given)
    return values


def _identity(given: Mapping[str, str]) -> Identity | None:
    """Keys and TLS from the options, else from the environment."""
    from orbitmq.errors import ValidationError
    from orbitmq.runtime.worker import this_worker

    host = this_worker().host
    if not given and not any(host.variable(name) for name in VARIABLES.values()):
        return None
    # A late import: a process that only looks up a schema should load little.
    from orbitmq.client.core.identities import identity_of

    try:
        return identity_of(given, host)
    except ValidationError as error:
        raise OptionError(str(error)) from error


class Reading(Enum):
    """The ways to read topics; each has options that make no sense there, with the reason."""

    BATCH = "a batch read"
    STREAM = "a stream"


_REFUSED = {
    Reading.BATCH: (
        ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay"),
        "it has no triggers: limit it by endingOffsets or by LIMIT",
    ),
    Reading.STREAM: (
        ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        "it has no end: use trigger(availableNow=True), which ends at what is there when it begins",
    ),
}
# Spark adds this option only for a table of its catalog.
_OF_A_TABLE = "provider"
_NO_TABLES = (
    "CREATE TABLE ... USING rocketmq cannot be used, since Spark drops the OPTIONS of a table: "
    "use CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...)"
)


def read_options(options: Mapping[str, str], reading: Reading | None = None) -> ReadOptions:
    """The options of a reader. ``load("orders")`` names the topic as the option does.

    Args:
        reading: the way of reading, for which options without effect are refused; ``None`` if it is not known
            yet. Without a start option a stream begins at latest, like Spark's Kafka source, and a batch read
            at earliest.

    Raises:
        OptionError: an option is unknown (the text lists the known ones), invalid, without effect, or
            missing.
    """
    given = {key.lower(): key for key in options}
    if _OF_A_TABLE in given:
        raise OptionError(_NO_TABLES)
    if reading is not None:
        names, why = _REFUSED[reading]
        for name in names:
            if name.lower() in given:
                raise OptionError(f"option {name} has no effect on {reading.value}: {why}")
    values = _parse(options, _READ, spellings.READING)
    if "path" in given:
        if "topics" in values:
            raise OptionError("name the topic once: in load(...) or in the option topic")
        values["topics"] = values_of.names(options[given["path"]])
    _choose_topics(values)
    if "offset_timeout_ms" in values:
        values["plan_timeout_ms"] = values["offset_timeout_ms"]
    elif reading is Reading.BATCH:
        values["plan_timeout_ms"] = BATCH_PLAN_TIMEOUT_MS
    _choose_place(values, "starting")
    if reading is Reading.STREAM:
        values.setdefault("starting", Start.LATEST)
    _choose_place(values, "ending")
    made = ReadOptions(**values, is_stream=reading is Reading.STREAM)
    if made.starting is Start.GROUP and made.group_id is None:
        raise OptionError(
            "startingOffsets=group begins where the group of the option groupId stands: name it"
        )
    if made.ending is Start.GROUP:
        raise OptionError("endingOffsets=group: a group stands where it began to read, not where it ends")
    _check_values(made)
    if reading is Reading.STREAM and made.push_filters:
        raise OptionError(
            "option pushFilters has no effect on a stream: use the options tags, sql and assign"
        )
    if made.max_rows is not None and made.min_rows is not None and made.min_rows > made.max_rows:
        raise OptionError(f"minRowsPerTrigger={made.min_rows} is above maxRowsPerTrigger={made.max_rows}")
    return made


def _check_values(made: ReadOptions) -> None:
    """Refuse filters that exclude each other."""
    if made.sql is not None and made.tags != "*":
        raise OptionError(
            "options tags and sql are both given: a broker filters by one (TAGS is a property too)"
        )


def _choose_topics(values: dict[str, Any]) -> None:
    """The topics to read, from one of three options."""
    names = {"topics": "topic", "topic_pattern": "topicPattern", "assigned": "assign"}
    given = [name for field, name in names.items() if field in values]
    if not given:
        raise OptionError(
            f"option topic is missing: name one topic, or several separated by commas. {_NO_TABLES}"
        )
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} say what is read: give one of them")
    if "assigned" in values:
        values["topics"] = tuple(sorted({queue.topic for queue in values["assigned"]}))


def _choose_place(values: dict[str, Any], which: str) -> None:
    """The begin or end of the read: by offsets, by one time, or by a time for each queue."""
    at_ms, times = values.pop(f"{which}_at_ms", None), values.pop(f"{which}_times", None)
    given = [
        name
        for name, value in (
            (f"{which}Offsets", values.get(which)),
            (f"{which}Timestamp", at_ms),
            (f"{which}OffsetsByTimestamp", times),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} say the same thing: give one of them")
    if at_ms is not None or times is not None:
        values[which] = AtTime(at_ms, times or {})


def state_beside(checkpoint: str) -> str:
    """The default folder of a sink's state, beside the checkpoint."""
    return checkpoint.rstrip("/") + "/orbitmq-sink"


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a writer; the state of its batches is beside the checkpoint unless an option names a
    folder.

    Raises:
        OptionError: an option is unknown (the text lists the known ones) or invalid.
    """
    values = _parse(options, _WRITE, spellings.WRITING)
    checkpoint = next((text for key, text in options.items() if key.lower() == "checkpointlocation"), "")
    if checkpoint:
        values["checkpoint"] = checkpoint
    if checkpoint and "state_location" not in values:
        values["state_location"] = state_beside(checkpoint)
    return WriteOptions(**values)
