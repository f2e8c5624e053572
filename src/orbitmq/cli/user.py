"""``orbitmq user``: users of brokers that require keys."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import DryRun, Flag, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.partial import done
from orbitmq.cli.view import Table, View, same

if TYPE_CHECKING:
    from orbitmq.admin import Admin

app = make_app(
    "user",
    "Users of brokers that require keys (ACL 2.0): list, create, change and delete them.",
    """
orbitmq user list
orbitmq user create app --generate
orbitmq user change app --secret-file secret.txt
orbitmq user change app --disable
orbitmq user delete app
""",
)

GENERATED_BYTES = 24
MAX_SECRET_BYTES = 8192
User = Annotated[str, Parameter(help="Name of the user.")]
Generate = Annotated[bool, Parameter(negative=(), help="Make a secret and show it, once.")]
SecretFile = Annotated[
    str | None,
    Parameter(allow_leading_hyphen=True, help="A file whose only line is the secret; - for standard input."),
]


@app.command(name="list")
@command
async def list_users(admin: Admin, /) -> View:
    """Show the users of each broker."""
    answer = await admin.access.users()
    rows = [
        {
            "user": one.user,
            "type": "super" if one.is_super else "normal",
            "state": "enabled" if one.is_enabled else "disabled",
            "broker": one.broker_name,
        }
        for one in answer.found
    ]
    columns = same("user", "type", "state", "broker")
    return View({}, [Table("users", rows, columns)], left_out=answer.left_out, missing="its users are")


@app.command
@command
async def create(
    admin: Admin,
    user: User,
    /,
    *,
    generate: Generate = False,
    secret_file: SecretFile = None,
    super: Flag = False,
) -> View:
    """Create a user at all brokers. A new user has no rights until 'orbitmq acl allow' gives some.

    Args:
        super: It may do everything, also change users and rules.
    """
    secret, shown = secret_of(generate, secret_file)
    if secret is None:
        raise UsageError("give --generate or --secret-file: a user needs a secret")
    brokers, left_out = await done(admin.access.create_user(user, secret, is_super=super))
    return View(
        {"user": user, "super": super, "brokers": brokers, **shown},
        lines=[f"made user {user} at {', '.join(brokers)}", *_once(user, shown)],
        left_out=left_out,
        finish=f"to finish, delete {user} and make it again when all answer",
    )


@app.command
@command
async def change(
    admin: Admin,
    user: User,
    /,
    *,
    generate: Generate = False,
    secret_file: SecretFile = None,
    enable: Flag = False,
    disable: Flag = False,
    super: Flag = False,
    normal: Flag = False,
) -> View:
    """Change the secret, the state or the type of a user at all brokers.

    Args:
        enable: Serve the user again.
        disable: Refuse what the user signs.
        super: It may do everything.
        normal: It may do what its rules allow.
    """
    secret, shown = secret_of(generate, secret_file)
    is_enabled = _either("enable", enable, "disable", disable)
    is_super = _either("super", super, "normal", normal)
    if secret is None and is_enabled is None and is_super is None:
        options = "--generate, --secret-file, --enable, --disable, --super or --normal"
        raise UsageError(f"nothing to change: give {options}")
    await check_known(admin, user)
    changing = admin.access.change_user(user, secret=secret, is_super=is_super, is_enabled=is_enabled)
    brokers, left_out = await done(changing)
    return View(
        {"user": user, "brokers": brokers, **shown},
        lines=[f"changed user {user} at {', '.join(brokers)}", *_once(user, shown)],
        left_out=left_out,
    )


@app.command
@command
async def delete(admin: Admin, user: User, /, *, dry_run: DryRun = False, yes: Yes = False) -> View:
    """Remove a user and its rules at all brokers. Asks first."""
    places = [one.broker_name for one in (await admin.access.users()).whole() if one.user == user]
    if not places:
        raise UsageError(f"no broker has a user {user}")
    rules = [rule for rule in (await admin.access.rules(user)).whole() if rule.broker_name in places]
    what = f"user {user} with {len({rule.resource for rule in rules})} rules at {', '.join(places)}"
    if dry_run:
        return View({"user": user, "brokers": [], "deleted": False}, lines=[f"would delete {what}"])
    await confirm("Delete", what, yes=yes)
    brokers, left_out = await done(admin.access.delete_user(user))
    line = f"deleted user {user} at {', '.join(brokers)}"
    return View({"user": user, "brokers": brokers, "deleted": True}, lines=[line], left_out=left_out)


async def check_known(admin: Admin, user: str) -> None:
    """Refuse a change of a user that no broker has.

    Raises:
        UsageError: no broker has the user; the text says how to create it.
    """
    answer = await admin.access.users()
    if not answer.left_out and all(one.user != user for one in answer.found):
        raise UsageError(f"no broker has a user {user}: 'orbitmq user create {user} --generate' makes one")


def _either(name: str, yes: bool, other: str, no: bool) -> bool | None:
    if yes and no:
        raise UsageError(f"--{name} and --{other}: give one of them")
    return True if yes else False if no else None


def secret_of(generate: bool, path: str | None) -> tuple[str | None, dict[str, Any]]:
    """The secret that the options give, and the part of it to print."""
    if generate and path is not None:
        raise UsageError("--generate and --secret-file: give one of them")
    if generate:
        made = secrets.token_urlsafe(GENERATED_BYTES)
        return made, {"secret": made}
    return (None if path is None else _read(path)), {}


def _read(path: str) -> str:
    from orbitmq.runtime.text_files import first_bytes

    if path == "-":
        data = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
    else:
        try:
            data = first_bytes(path, MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise UsageError(f"--secret-file {path}: {error.strerror or error}") from error
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    # The content of the file is not shown: it may be a secret nevertheless.
    if len(lines) != 1 or not lines[0].strip() or len(data) > MAX_SECRET_BYTES:
        raise UsageError(
            f"--secret-file {path}: expected one line of text, of at most {MAX_SECRET_BYTES} bytes"
        )
    return lines[0].strip()


def _once(user: str, shown: dict[str, Any]) -> list[str]:
    return [f"secret of {user}, shown once: {shown['secret']}"] if shown else []
