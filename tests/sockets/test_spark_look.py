"""Mistakes about a sink's topic that the driver finds before a task begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.sockets.test_spark_brokers import Cluster, cluster_of

from orbitmq.errors import TopicNotFoundError
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.routes import forget_routes
from orbitmq.spark.errors import NotPermittedError, OptionError, UnreachableError
from orbitmq.spark.options import AT_LEAST_ONCE, write_options
from orbitmq.spark.write import look as look_up
from orbitmq.spark.write.look import looked_up, route_to_write

__all__ = ["cluster_of"]

READ, WRITE = 4, 2


def options(cluster: Cluster, **given: str) -> Any:
    named = {} if given.pop("column", "") else {"topic": "t"}
    return write_options({**named, "nameServers": cluster.name_server.address, **given})


def none_of_its_own(cluster: Cluster) -> None:
    """The name server knows brokers, and not the topic."""
    cluster.deleted = True
    cluster.stop_name_server("empty")


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize("column", ["", "yes"], ids=["topic", "column"])
@pytest.mark.parametrize("outage", ["away", "frozen", "unknown"])
def test_the_driver_waits_for_a_few_seconds_only(
    cluster_of: Callable[..., Cluster], outage: str, column: str
) -> None:
    cluster = cluster_of()
    if outage == "unknown":
        none_of_its_own(cluster)
    else:
        cluster.stop_name_server(outage)
    begin = time.monotonic()
    if outage == "unknown" and column:
        assert looked_up(options(cluster, column=column)) == {}, "tasks see the topics"
    elif outage == "unknown":
        address = cluster.name_server.address
        expected = (
            rf"topic 't' is not known to the name servers {address}: create it with "
            rf"`orbitmq topic create t -n '{address}'`, or correct its name"
        )
        with pytest.raises(TopicNotFoundError, match=expected):
            looked_up(options(cluster))
    else:
        with pytest.raises(UnreachableError, match="no name server gave an answer"):
            looked_up(options(cluster, column=column))
    assert time.monotonic() - begin < 50, "not for retryTimeout, which is a minute"


@pytest.mark.behaviour("SP-12")
def test_a_name_server_that_knows_no_broker_says_nothing_of_a_topic(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster = cluster_of()
    cluster.stop_name_server("empty")
    with pytest.raises(UnreachableError, match="know no broker yet"):
        looked_up(options(cluster))


@pytest.mark.behaviour("SP-12")
def test_permissions_are_seen(cluster_of: Callable[..., Cluster]) -> None:
    read_only, write_only = cluster_of(perm=READ), cluster_of(perm=WRITE)
    with pytest.raises(NotPermittedError, match=r"can only be read: .*--queues 1 --permission 6 -n '127"):
        looked_up(options(read_only))
    read_only.role = "SLAVE"
    assert looked_up(options(read_only)), "the tasks wait for the master that it acts for"
    with pytest.raises(NotPermittedError, match="can only be written"):
        looked_up(options(write_only))
    assert looked_up(options(write_only, delivery=AT_LEAST_ONCE)), "which reads nothing"


@pytest.mark.behaviour("SP-11")
@pytest.mark.parametrize("column", ["", "yes"], ids=["topic", "column"])
def test_what_a_driver_found_is_noted_for_the_next_one(
    cluster_of: Callable[..., Cluster], tmp_path: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long it waits is shown above.
    monkeypatch.setattr(look_up, "LOOK_MS", 1_000)
    cluster = cluster_of()
    given = {"column": column}

    def look(location: str, **more: str) -> Any:
        forget_routes()  # as in another process
        return looked_up(options(cluster, checkpointLocation=location, **given, **more))

    routes = look(str(tmp_path))
    if not column:
        # After a restart the name servers know other brokers first.
        none_of_its_own(cluster)
        cluster.deleted = False
        assert look(str(tmp_path)) == routes
        cluster.deleted = True
        with pytest.raises(TopicNotFoundError, match="topic 't' is not "):
            look(str(tmp_path))
    cluster.stop_name_server("away")
    cluster.deleted = False
    for location in (str(tmp_path), f"file://{tmp_path}"):
        assert look(location) == routes
    with pytest.raises(UnreachableError):
        look(str(tmp_path / "another"))
    if not column:
        with pytest.raises(UnreachableError):
            look(str(tmp_path), topic="u")
    (tmp_path / "orbitmq-sink" / "routes.json").write_text('{"v": 2, "routes": {"t"')
    with pytest.raises(UnreachableError):
        look(str(tmp_path))


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize("name", ["two words", "x" * 128, "a/b"])
def test_names_that_no_topic_has(cluster_of: Callable[..., Cluster], name: str) -> None:
    with pytest.raises(OptionError, match=r"option topic=.* cannot name a topic"):
        options(cluster_of(), topic=name)
    with pytest.raises(OptionError, match=r"option producerGroup=.* cannot name a group"):
        options(cluster_of(), producerGroup=name * 3)


@pytest.mark.behaviour("SP-12")
def test_a_name_in_a_column_that_no_topic_has(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of()
    brokers = Brokers([cluster.name_server.address], 5_000)
    with pytest.raises(TopicNotFoundError, match="no topic can be named 'a b'"):
        route_to_write(brokers, "a b", options(cluster, column="yes"), 60_000)
    assert not cluster.routes_asked, "nobody was asked"
