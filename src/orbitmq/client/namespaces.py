"""Names of topics and groups inside a namespace: ``space%topic`` on the wire (NamespaceUtil)."""

from __future__ import annotations

import copy
from typing import TypeVar

from orbitmq.errors import ValidationError
from orbitmq.message import property_names, reserved
from orbitmq.message.model import Message
from orbitmq.message.utf8 import check_utf8

M = TypeVar("M", bound=Message)


class Namespace:
    """Adds a namespace to names and removes it.

    Args:
        name: the namespace; if it is empty, names stay unchanged.

    Raises:
        ValidationError: the name contains ``%``.
    """

    def __init__(self, name: str = "") -> None:
        if reserved.NAMESPACE_SEPARATOR in name:
            raise ValidationError(f"a namespace must not contain '%', got {name!r}")
        check_utf8("namespace", name)
        self.name = name
        self._head = name + reserved.NAMESPACE_SEPARATOR

    def __bool__(self) -> bool:
        return bool(self.name)

    def full(self, resource: str) -> str:
        """The name on the wire; a name that is in the namespace already stays as it is."""
        if not self.name or reserved.is_system_topic(resource) or reserved.is_system_group(resource):
            return resource
        prefix, rest = _split(resource)
        return resource if rest.startswith(self._head) else f"{prefix}{self._head}{rest}"

    def short(self, resource: str) -> str:
        """The name without the namespace; a name of another namespace stays as it is."""
        if not self.name:
            return resource
        prefix, rest = _split(resource)
        return prefix + rest.removeprefix(self._head) if rest.startswith(self._head) else resource

    def outward(self, message: M) -> M:
        """The message to send for the user's message, which itself stays unchanged."""
        if not self.name or property_names.MSG_TYPE in message.properties:
            return message  # a reply goes to the reply topic of its broker's cluster, which has no namespace
        topic = self.full(message.topic)
        if topic == message.topic:
            return message
        named = copy.copy(message)
        named.topic = topic
        return named


def _split(resource: str) -> tuple[str, str]:
    for prefix in (reserved.RETRY_PREFIX, reserved.DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource.removeprefix(prefix)
    return "", resource
