"""Options about the console's users and addresses, checked before it listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from orbitmq.cli.app import Flag
from orbitmq.cli.failures import UsageError

if TYPE_CHECKING:
    from orbitmq.console.entrance import Entrance
    from orbitmq.console.users_file import User
    from orbitmq.runtime.seam import Threads

LOOPBACK = ("127.0.0.1", "::1", "localhost")
FIRST, LAST = 1, 65_535


@Parameter(name="*")
@dataclass(frozen=True)
class Entering:
    """Options of the console's entrance.

    Attributes:
        users: File with the console's users, a line for each as 'orbitmq console password' prints it. It must
            be readable by you alone.
        login: Let the users of the cluster in, with their secret keys; the brokers decide what each may do.
        cert: Certificate for https, a PEM file.
        key: Its private key, a PEM file.
        public: Address by which browsers reach it, such as https://mq.example.com.
        behind_proxy: Address of a proxy that speaks https with browsers and passes requests on.
        user_header: Header in which that proxy names the user, for single sign-on; --users has the roles.
    """

    users: str | None = None
    login: Flag = False
    cert: str | None = None
    key: str | None = None
    public: str | None = None
    behind_proxy: str | None = None
    user_header: str | None = None

    def check(self, host: str, port: int) -> None:
        """Refuse options that would let strangers in, or no user at all.

        Raises:
            UsageError: the options conflict; the text names the option that is missing or superfluous.
        """
        if not FIRST <= port <= LAST:
            raise UsageError(f"--port {port}: expected {FIRST} to {LAST}")
        if self.users is not None and self.login:
            raise UsageError(
                "--users and --login: users are in a file or those of the cluster: give one of them"
            )
        if (self.cert is None) != (self.key is None):
            raise UsageError("--cert and --key belong together")
        if self.user_header is not None and (self.behind_proxy is None or self.users is None):
            raise UsageError(
                "--user-header needs --behind-proxy, whose header counts, and --users with the roles"
            )
        if self.behind_proxy is not None and self.public is None:
            raise UsageError("--behind-proxy needs --public: the address by which browsers reach the proxy")
        if self.public is not None and _split(self.public) is None:
            raise UsageError(f"--public {self.public}: expected an address such as https://mq.example.com")
        if host in LOOPBACK:
            return
        here = f"--host {host}: expected 127.0.0.1, ::1 or localhost: elsewhere"
        if self.users is None and not self.login:
            raise UsageError(f"{here} it needs users: --users or --login")
        if self.cert is None and self.behind_proxy is None:
            raise UsageError(f"{here} passwords need https: --cert and --key, or --behind-proxy")

    @property
    def by_link(self) -> bool:
        """Whether the printed link opens a session."""
        return self.users is None and not self.login

    def address(self, host: str, port: int) -> str:
        """The address that a user opens in a browser."""
        if self.public is not None:
            return self.public.rstrip("/")
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.cert is None else 'https'}://{shown}:{port}"

    def entrance(
        self,
        host: str,
        port: int,
        options: Mapping[str, Any],
        threads: Threads,
        monotonic: Callable[[], float],
    ) -> Entrance:
        """The entrance for these options.

        Raises:
            UsageError, ValidationError: the file of users cannot be read, or is invalid.
        """
        from orbitmq.console.entrance import Entrance, ProxyUsers
        from orbitmq.console.logins import Desk, Door, FileDoor, RocketMQDoor

        scheme, public = _split(self.address(host, port)) or ("http", "")
        hosts = {public.lower()}
        if self.behind_proxy is None:
            hosts |= {f"{one}:{port}" for one in ("127.0.0.1", "[::1]", "localhost")}
        users = {} if self.users is None else read_users(self.users)
        cookie = f"{'__Host-' if scheme == 'https' else ''}orbitmq_console_{port}"
        if self.user_header is not None and self.behind_proxy is not None:
            proxy = ProxyUsers(self.user_header, frozenset({self.behind_proxy}), users)
            return Entrance(frozenset(hosts), scheme, by_link=False, proxy=proxy, cookie=cookie)
        if self.by_link:
            return Entrance(frozenset(hosts), scheme, cookie=cookie)
        door: Door = RocketMQDoor(options, monotonic) if self.login else FileDoor(users, threads)
        desk = Desk(door, monotonic, by_address=self.behind_proxy is None)
        return Entrance(frozenset(hosts), scheme, by_link=False, desk=desk, cookie=cookie)


def read_users(path: str) -> Mapping[str, User]:
    """The users of a file.

    Raises:
        UsageError: the file cannot be read.
        ValidationError: other users can read the file, or a line is invalid.
    """
    from orbitmq.console.users_file import MAX_BYTES, parsed
    from orbitmq.runtime.text_files import private_bytes

    try:
        data = private_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--users {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"--users {path}: it is larger than {MAX_BYTES:,} bytes")
    try:
        return parsed(data.decode(), path)
    except UnicodeDecodeError:
        raise UsageError(f"--users {path}: it is no text in UTF-8") from None


def _split(address: str) -> tuple[str, str] | None:
    """Scheme and host of an address; ``None`` if it is no address, or has a path."""
    try:
        found = urlsplit(address)
        _ = found.port
    except ValueError:
        return None
    if found.scheme not in ("http", "https") or not found.hostname or found.path.strip("/") or found.query:
        return None
    return found.scheme, found.netloc
