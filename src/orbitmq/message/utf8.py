"""Text without a UTF-8 form: half of a surrogate pair, for example from an undecodable file name."""

from __future__ import annotations

from orbitmq.errors import ValidationError

_SHOWN_CHARS = 100


def check_utf8(what: str, text: str) -> None:
    """Refuse a text that has no UTF-8 form.

    Args:
        what: the name of the text, for the error.

    Raises:
        ValidationError: the text has half of a surrogate pair.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"{what} {text[:_SHOWN_CHARS]!r} has no UTF-8 form: {text[error.start]!a} at character "
            f"{error.start} is half of a surrogate pair"
        ) from None


def for_people(text: str) -> str:
    """The text for output, with ``?`` in place of characters that have no UTF-8 form."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
