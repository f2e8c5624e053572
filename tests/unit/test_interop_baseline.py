"""The recorded outputs of mqadmin are compared only with the same conversation, and never when damaged."""

from __future__ import annotations

from pathlib import Path

from tests.interop.baseline import Baseline, load


def test_a_baseline_is_for_the_same_commands_only(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "mqadmin.json"
    assert load(path) == Baseline()
    made = Baseline({"basics": {"topicList": "a\n", "clusterList": "b\n"}}, {"brokerStatus": {"tps": "0"}})
    made.save(path)
    kept = load(path)
    assert kept == made
    assert kept.of("basics", {"clusterList", "topicList"}) == made.conversations["basics"]
    assert kept.of("basics", {"topicList"}) is None
    assert kept.of("more", set()) is None


def test_a_damaged_baseline_is_none(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"other": {}}'):
        path = tmp_path / "mqadmin.json"
        path.write_text(text)
        assert load(path) == Baseline()
