"""The settings that docs/operations.md describes are those that the broker has."""

import re
from pathlib import Path

from orbitmq.broker.config import BrokerConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)`( \*)? \|([^|]*)\|", TEXT.partition("## broker.conf")[2], re.MULTILINE)


def test_every_key_is_a_setting_with_the_default_described() -> None:
    settings = BrokerConfig().to_properties()
    for key, _, default in ROWS:
        assert key in settings, key
        shown = default.strip().strip("`")
        if shown.isdigit() or shown in ("true", "false") or shown.isupper():
            assert settings[key] == shown, key


def test_every_setting_is_described_once() -> None:
    assert sorted(key for key, _, _ in ROWS) == sorted(BrokerConfig().to_properties())


def test_the_star_marks_what_may_change_while_it_runs() -> None:
    settings = BrokerConfig().to_properties()
    for key, star, _ in ROWS:
        try:
            BrokerConfig().apply_live({key: settings[key]})
        except ValueError:
            assert not star, key
        else:
            assert star, key
