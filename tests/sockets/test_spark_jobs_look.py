"""Jobs of the command line tell of wrong topics before Spark is started for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq import Message
from orbitmq.cli.main import main
from orbitmq.spark import session
from orbitmq.sync import Producer
from orbitmq.testing import RunningCluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster"))) as cluster:
        with Producer("g", name_servers=cluster.name_server) as producer:
            producer.send(Message("there", "x"))
        yield cluster


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("replay nosuch there", "topic 'nosuch' is not known to the name servers"),
        ("replay there nosuch", "topic 'nosuch' is not known to the name servers"),
        ("replay there /tmp/x", "'/tmp/x' is no topic to send to"),
        ("replay there there --resume yesterday", "--resume yesterday: that is no run"),
        ("archive nosuch {folder}", "topic 'nosuch' is not known to the name servers"),
        ("audit nosuch", "topic 'nosuch' is not known to the name servers"),
        ("audit there --sent {folder}/none.csv", "none.csv is not there"),
        ("dlq nosuch", "topic '%DLQ%nosuch' is not known to the name servers"),
        ("redrive nosuch", "topic '%DLQ%nosuch' is not known to the name servers"),
    ],
)
def test_a_wrong_topic_is_told_without_spark(
    cluster: RunningCluster,
    words: str,
    told: str,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", started)
    line = ["spark", *words.format(folder=tmp_path).split(), "-n", cluster.name_server]
    assert main(line) == 1
    shown = capsys.readouterr().err
    assert told in shown
    assert "Spark" not in shown
