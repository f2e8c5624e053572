"""Finds the targets of changes for the audit log of a name server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitmq.auth.changes import Look, Sights, access_looks, settings_look
from orbitmq.auth.name_server_requests import REQUESTS, NameServerFacts
from orbitmq.auth.needs import asked_of
from orbitmq.nameserver.access import NameServerAccess
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.kv import KvConfig
from orbitmq.nameserver.routes import RouteTable
from orbitmq.settings import properties_text
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command


def sights_of(
    access: NameServerAccess | None, routes: RouteTable, kv: KvConfig, config: Callable[[], NameServerConfig]
) -> Sights:
    """How the audit log of a name server finds the targets of changes and their states.

    Args:
        access: the users and rules; None: the name server requires no keys.
        config: returns the present settings.
    """

    def entry(command: Command) -> dict[str, Any]:
        namespace, key = command.ext.get("namespace", ""), command.ext.get("key", "")
        return {f"key {key} of {namespace}": kv.get(namespace, key)}

    looks: dict[int, Look] = {
        Code.PUT_KV_CONFIG: entry,
        Code.DELETE_KV_CONFIG: entry,
        Code.UPDATE_NAMESRV_CONFIG: settings_look(lambda: config().to_properties(), properties_text.parse),
    }
    if access is not None:
        looks |= access_looks(access.users, access.rules)
    return Sights(asked_of(REQUESTS, NameServerFacts(routes.clusters, routes.cluster_of)), looks)
