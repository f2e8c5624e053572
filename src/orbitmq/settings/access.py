"""Settings of authentication and authorization: which a server has, and which it refuses to start with.

A server that ignored one of them would serve users whom its file excludes, or leave a way around the checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from orbitmq.errors import ValidationError
from orbitmq.settings import properties_text, tls
from orbitmq.settings.typed import HIDDEN, ConfigError, Parser, flag, line_of, one_of, path, setting
from orbitmq.wire.signing import Credentials

AUTHENTICATION: Final = "authenticationEnabled"
AUTHORIZATION: Final = "authorizationEnabled"
MODE: Final = "authMode"
ACL_1: Final = "aclEnable"
MIGRATES: Final = "migrateAuthFromV1Enabled"
ENFORCE: Final = "enforce"
OBSERVE: Final = "observe"
SWITCHES: Final = frozenset({AUTHENTICATION, AUTHORIZATION})
_AUTH: Final = "org.apache.rocketmq.auth."


def authentication() -> Any:
    """Whether only requests that a user has signed are served."""
    return setting(False, AUTHENTICATION, flag)


def acl_1() -> Any:
    """Whether the accounts of ACL 1.0 in plain_acl.yml are the users and their rules."""
    return setting(False, ACL_1, flag)


def migrates() -> Any:
    """Whether a start makes users and rules from those accounts of ACL 1.0 that have no user yet."""
    return setting(False, MIGRATES, flag)


def authorization() -> Any:
    """Whether users may do only what rules permit."""
    return setting(False, AUTHORIZATION, flag)


def mode() -> Any:
    """Whether requests that are not permitted are refused, or only counted."""
    return setting(ENFORCE, MODE, one_of(ENFORCE, OBSERVE), live=True)


def strategy() -> Any:
    """The class that decides how often signatures are checked; empty: RocketMQ's default, at each request."""
    return setting("", "authenticationStrategy", lambda _key, value: value)


def key_file() -> Any:
    """The file with the key that encrypts the secrets of users in files; empty: they are stored in clear."""
    return setting("", "authKeyFile", path)


def reveals() -> Any:
    """Whether getUser and listUser show passwords to super users, on connections that nobody else reads."""
    return setting(False, "authRevealPasswords", flag)


REVEALED: Final = "authRevealPasswords=true: getUser and listUser show passwords to super users"


def first_user() -> Any:
    """The super user who is made at the first start."""
    return setting("", "initAuthenticationUser", keys("username", "password"), secret=True)


def inner_keys() -> Any:
    """The keys with which the server signs its own requests; their user is a super user, too."""
    return setting("", "innerClientAuthenticationCredentials", keys("accessKey", "secretKey"), secret=True)


def credentials_of(*named: Credentials | str) -> list[Credentials]:
    """The users that the settings name: :func:`first_user` and :func:`inner_keys`, if they are set."""
    return [each for each in named if isinstance(each, Credentials)]


def keys(name: str, secret: str) -> Parser:
    """A parser for JSON with two texts, as RocketMQ has it: ``{"username":"root","password":"..."}``; or
    nothing."""
    expected = f'JSON as {{"{name}":"...","{secret}":"..."}}'

    def parse(key: str, value: str) -> Credentials | str:
        if not value:
            return ""
        try:
            found = json.loads(value)
        except ValueError:
            raise ConfigError(key, HIDDEN, expected) from None
        if not isinstance(found, dict) or not {name, secret} <= found.keys():
            raise ConfigError(key, HIDDEN, expected)
        try:
            return Keys(found[name], found[secret])
        except ValidationError as error:
            text = str(error).replace("access_key", name).replace("secret_key", secret)
            raise ConfigError(key, HIDDEN, f"{expected}; {text}") from None

    return parse


class Keys(Credentials):
    """Keys of a setting; a printed setting shows only that there are keys."""

    __slots__ = ()

    def __str__(self) -> str:
        return HIDDEN


def _class_of(*names: str) -> Callable[[str], bool]:
    return lambda value: value in ("", *(_AUTH + name for name in names))


_PROVIDER: Final = "nothing, or RocketMQ's default: other classes do not run here"
STATEFUL: Final = f"{_AUTH}authentication.strategy.StatefulAuthenticationStrategy"
_STRATEGY: Final = "nothing, or one of RocketMQ's two"
_LISTED: Final = "nothing: no request is served here without an identity"
_ALONE: Final = (
    "where keys are required a broker without replicas, or innerClientAuthenticationCredentials, "
    "with which the brokers of a name prove to each other who they are"
)
# By key: a test of the values that are allowed while keys are required, and the words of the refusal.
Bounds: TypeAlias = Mapping[str, tuple[Callable[[str], bool], str]]
OF_ALL: Final[Bounds] = {
    "authenticationProvider": (_class_of("authentication.provider.DefaultAuthenticationProvider"), _PROVIDER),
    "authorizationProvider": (_class_of("authorization.provider.DefaultAuthorizationProvider"), _PROVIDER),
    "authenticationMetadataProvider": (
        _class_of("authentication.provider.LocalAuthenticationMetadataProvider"),
        _PROVIDER,
    ),
    "authorizationMetadataProvider": (
        _class_of("authorization.provider.LocalAuthorizationMetadataProvider"),
        _PROVIDER,
    ),
    "authenticationStrategy": (
        _class_of(
            "authentication.strategy.StatelessAuthenticationStrategy",
            "authentication.strategy.StatefulAuthenticationStrategy",
        ),
        _STRATEGY,
    ),
    "authorizationStrategy": (
        _class_of(
            "authorization.strategy.StatelessAuthorizationStrategy",
            "authorization.strategy.StatefulAuthorizationStrategy",
        ),
        _STRATEGY,
    ),
    "authenticationWhitelist": (lambda value: not value, _LISTED),
    "authorizationWhitelist": (lambda value: not value, _LISTED),
}
# For name servers, which do not read the accounts of ACL 1.0.
OF_NAME_SERVERS: Final[Bounds] = {
    **OF_ALL,
    MIGRATES: (lambda value: value.lower() != "true", "false: only brokers read the accounts of ACL 1.0"),
}
# For brokers without keys of their own.
OF_LONE_BROKERS: Final[Bounds] = {
    **OF_ALL,
    "brokerRole": (lambda value: value in ("", "ASYNC_MASTER"), _ALONE),
    "totalReplicas": (lambda value: value in ("", "1"), _ALONE),
    "enableSlaveActingMaster": (lambda value: value.lower() != "true", _ALONE),
}

_ONE_SOURCE: Final = (
    f"false beside {ACL_1}=true: users and rules come from plain_acl.yml or from the commands, not from both"
)
# For brokers with the accounts of ACL 1.0.
OF_ACL_1: Final[Bounds] = {
    key: (lambda value: value.lower() != "true", _ONE_SOURCE) for key in (*sorted(SWITCHES), MIGRATES)
}


def check(text: str, overrides: Mapping[str, str], is_on: bool, bounds: Bounds) -> None:
    """Refuse settings that do not go together with the required keys.

    Args:
        text: the text of a configuration file.
        overrides: settings that win over it.
        is_on: whether keys are required.
        bounds: the values that other settings may have then.

    Raises:
        ConfigError: the error names the key, its value and its line.
    """
    settings = {key: value.strip() for key, value in {**properties_text.parse(text), **overrides}.items()}

    def refuse(key: str, expected: str) -> None:
        raise ConfigError(key, settings[key], expected, None if key in overrides else line_of(text, key))

    if not is_on:
        if settings.get(AUTHORIZATION, "").lower() == "true":
            why = "who is not asked for keys may say any name"
            refuse(AUTHORIZATION, f"{AUTHENTICATION}=true beside it: {why}")
        if settings.get(tls.NAMES_KEY, "off").lower() != "off":
            refuse(tls.NAMES_KEY, f"{AUTHENTICATION}=true beside it: else no request needs a user")
        if settings.get(MODE, ENFORCE) != ENFORCE:
            refuse(MODE, f"{AUTHENTICATION}=true beside it: else nothing is observed")
        return
    for key, (is_good, expected) in bounds.items():
        if key in settings and not is_good(settings[key]):
            refuse(key, expected)
