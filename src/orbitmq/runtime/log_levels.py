"""Levels of loggers that a setting names."""

from __future__ import annotations

import logging
from collections.abc import Mapping


class LogLevels:
    """Sets levels, and restores those from before."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def apply(self, wanted: Mapping[str, str]) -> None:
        """Give these loggers these levels, and all others the levels that they had."""
        for name in [name for name in self._before if name not in wanted]:
            logging.getLogger(name).setLevel(self._before.pop(name))
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            self._before.setdefault(name, logger.level)
            logger.setLevel(level)
