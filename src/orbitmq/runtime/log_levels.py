"""Levels of loggers that a setting asks for."""

from __future__ import annotations

import logging
from collections.abc import Mapping


class LogLevels:
    """Sets levels, and sets back what they were."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def apply(self, wanted: Mapping[str, str]) -> None:
        """Let these loggers have these levels from now on, and all others what they had."""
        for name in [name for name in self._before if name not in wanted]:
            logging.getLogger(name).setLevel(self._before.pop(name))
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            self._before.setdefault(name, logger.level)
            logger.setLevel(level)
