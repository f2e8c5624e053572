"""The texts of the pages in English and Chinese, by language. RocketMQ's settings keep their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.console.model import Said
from orbitmq.console.words import WORDS

LANGUAGES: Final = {"en": 0, "zh": 1}


class Texts:
    """The texts of one language."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else "en"
        self._at = LANGUAGES[self.language]

    def __call__(self, key: str) -> str:
        """The text of this key."""
        return WORDS[key][self._at]

    def state(self, value: str) -> str:
        """The name of a state; for a state that a client or a broker defines, the state itself."""
        return WORDS.get(f"state.{value}", (value, value))[self._at]

    def of(self, sentence: Said | None) -> str:
        """The text of a sentence with its values; a count of 1 takes the singular if there is one."""
        if sentence is None:
            return ""
        single = f"{sentence.key}.1"
        key = (
            single
            if single in WORDS and 1 in (sentence.values.get("n"), sentence.values.get("all"))
            else sentence.key
        )
        values = {
            name: f"{value:,}" if isinstance(value, int) else value for name, value in sentence.values.items()
        }
        return WORDS[key][self._at].format(**values)


BY_LANGUAGE: Final[Mapping[str, Texts]] = {language: Texts(language) for language in LANGUAGES}


def language_of(header: str) -> str:
    """The language of pages for a browser that sends this header Accept-Language."""
    first = header.partition(",")[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"
