"""The cluster and the identity of a command: from an option, a context or the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbitmq.cli import java_options
from orbitmq.cli.failures import UsageError

if TYPE_CHECKING:
    from orbitmq.runtime.client_tls import Tls
    from orbitmq.runtime.seam import HostFacts
    from orbitmq.wire.signing import CredentialsSource


MOST_CLUSTERS = 32


@dataclass(frozen=True, slots=True)
class Servers:
    """The name servers of a cluster, and the identity of the requests.

    Attributes:
        addresses: the addresses, in the form that clients accept.
        credentials, tls: the keys that clients sign with, and their TLS settings.
        context: the name of the context; empty for none.
    """

    addresses: str
    credentials: CredentialsSource | None = None
    tls: Tls | None = None
    context: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options of every client."""
        return {"name_servers": self.addresses, "credentials": self.credentials, "tls": self.tls}


@dataclass(frozen=True, slots=True)
class Clusters:
    """One or several clusters, each with its identity; their names differ."""

    servers: tuple[Servers, ...]


def clusters_of(name_servers: str | None, contexts: list[str] | None, *, every: bool) -> Clusters:
    """The clusters of the named contexts, or of all contexts; without names the cluster of
    :func:`servers_of`.

    Raises:
        UsageError, ValidationError: as in :func:`servers_of`; or there are no contexts, or too many.
    """
    from orbitmq.cli import contexts as kept
    from orbitmq.runtime.system import SystemHost

    names = list(dict.fromkeys(contexts or ()))
    if every:
        if names or name_servers is not None:
            raise UsageError("--all-contexts names all clusters: leave out --context and --name-servers")
        names = sorted(kept.load(SystemHost()).contexts)
        if not names:
            raise UsageError("--all-contexts: there is no context; make one with 'orbitmq context create'")
    if len(names) > MOST_CLUSTERS:
        raise UsageError(f"{len(names)} contexts: at most {MOST_CLUSTERS} at once")
    if not names:
        return Clusters((servers_of(name_servers, None),))
    return Clusters(tuple(servers_of(name_servers, name) for name in names))


def servers_of(name_servers: str | None, context: str | None, *, with_keys: bool = True) -> Servers:
    """The cluster that the options name, else that of ``ORBITMQ_CONTEXT``, of ``NAMESRV_ADDR``, of the
    current context, or the one on this machine.

    Args:
        with_keys: whether a context may have keys and TLS.

    Raises:
        UsageError: both options are given; the context is empty, missing or unreadable; it has keys or TLS
            that the command cannot use; or Java options in the environment require TLS.
        ValidationError: an address, or a variable or file about keys and TLS, is invalid.
        SecretCommandError: the secret command of the context fails.
    """
    if name_servers is not None and context is not None:
        raise UsageError("--name-servers and --context both say where the cluster is: give one of them")
    if context is not None and not context.strip():
        raise UsageError("--context is empty: give the name of one of `orbitmq context list`")
    from orbitmq.cli import contexts
    from orbitmq.client.core.identities import identity_of
    from orbitmq.client.core.name_servers import VARIABLE as NAMESRV_ADDR
    from orbitmq.client.core.name_servers import name_servers_of
    from orbitmq.runtime.system import SystemHost
    from orbitmq.wire.addresses import shown

    host = SystemHost()
    name, given = "", dict[str, str]()
    named = context or host.variable(contexts.VARIABLE)
    if name_servers is None and (named or not host.variable(NAMESRV_ADDR)):
        name, name_servers, given = _of_context(host, context, with_keys=with_keys)
    addresses = shown(name_servers_of(name_servers, host))
    called = {option: f"{one} of context {name}" for option, one in contexts.OPTIONS.items()}
    identity = identity_of(given, host, called)
    java_options.refuse_tls_of_tool(spoken=identity.tls is not None)
    return Servers(addresses, identity.credentials, identity.tls, name)


def _of_context(
    host: HostFacts, context: str | None, *, with_keys: bool
) -> tuple[str, str | None, dict[str, str]]:
    """Name, addresses and options of the named or the current context."""
    from orbitmq.cli import contexts

    known = contexts.load(host)
    name = context or host.variable(contexts.VARIABLE) or known.current
    if not name:
        return "", None, {}
    found = known.named(name, "--context" if context else f"${contexts.VARIABLE}")
    if not with_keys and (found.user or found.credentials_file or found.speaks_tls):
        raise UsageError(
            f"context {name} has keys or TLS, which the jobs on Spark take from the environment: give "
            "--name-servers, and ORBITMQ_CREDENTIALS_FILE, ORBITMQ_TLS_CA and so on"
        )
    options = {key: value for key, value in found.options(name).items() if value}
    return name, found.name_servers, options
