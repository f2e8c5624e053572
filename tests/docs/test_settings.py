"""The settings that docs/settings.md describes are those that the servers have."""

import re
from pathlib import Path

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.settings.typed import Settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
NAME_SERVER_PART, _REST = PAGE.partition("## namesrv.conf")[2].split("## broker.conf")
BROKER_PART, _, TLS_PART = _REST.partition("\n## TLS")


def rows(part: str) -> list[tuple[str, str, str]]:
    """Key, star and default of each row."""
    return re.findall(r"^\| `([\w.]+)`( \*)? \|([^|]*)\|", part, re.MULTILINE)


both = pytest.mark.parametrize(
    ("config", "part"),
    [(BrokerConfig(), BROKER_PART + TLS_PART), (NameServerConfig(), NAME_SERVER_PART + TLS_PART)],
)


@both
def test_every_key_is_a_setting_with_the_default_described(config: Settings, part: str) -> None:
    settings = config.to_properties()
    for key, _, default in rows(part):
        assert key in settings, key
        shown = default.strip().strip("`")
        if shown.isdigit() or shown in ("true", "false") or shown.isupper():
            assert settings[key] == shown, key


@both
def test_every_setting_is_described_once(config: Settings, part: str) -> None:
    assert sorted(key for key, _, _ in rows(part)) == sorted(config.to_properties())


@both
def test_the_star_marks_what_may_change_while_it_runs(config: Settings, part: str) -> None:
    settings = config.to_properties()
    for key, star, _ in rows(part):
        try:
            config.live_changes({key: settings[key]})
        except ValueError:
            assert not star, key
        else:
            assert star, key
