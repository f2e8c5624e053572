"""systemd units for a name server and a broker, made from their configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.cli.failures import UsageError
from orbitmq.settings import properties_text
from orbitmq.settings.access import ACL_1, MIGRATES

PAGE: Final = "https://github.com/orbitmq/orbitmq/blob/main/docs/installing.md"
STATE: Final = "/var/lib/orbitmq"
# Folders that the unit hides from the server: home folders (ProtectHome) and temporary folders (PrivateTmp).
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written
# Files that systemd reads as root and passes to this server only, by the settings that name them. A
# certificate is passed with its key, so that both belong together even after a renewal.
CREDENTIALS: Final = {
    "metricsTokenFile": "metrics-token",
    "tls.server.certPath": "tls-server-cert",
    "tls.server.keyPath": "tls-server-key",
    "tls.client.certPath": "tls-client-cert",
    "tls.client.keyPath": "tls-client-key",
    "tlsCertPath": "grpc-cert",
    "tlsKeyPath": "grpc-key",
    "authKeyFile": "auth-key",
}
READ: Final = ("tls.server.trustCertPath", "tls.client.trustCertPath")
# The folder above conf/plain_acl.yml, a file that the server reads, and writes at mqadmin's request.
ACCOUNTS: Final = "rocketmqHome"
PORTS: Final = ("listenPort", "haListenPort", "grpcServerPort", "metricsPromExporterPort")
# Settings that name a folder in which the server writes; the other settings name a file.
FOLDERS: Final = ("storePathRootDir", "storePathCommitLog", "authConfigPath", ACCOUNTS)
# Folders that systemd creates for the user of the unit, and the unit's key for each.
MADE: Final = {"/var/lib/": "StateDirectory", "/var/log/": "LogsDirectory"}

# The sandbox allows only what a server needs: its folders, its sockets, the system calls of an ordinary
# service.
SANDBOX: Final = """\
UMask=0077
LimitNOFILE=65536
LimitCORE=0
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """The parts of a systemd unit.

    Attributes:
        server: ``broker`` or ``nameserver``: the command that runs it.
        title: a description for people.
        conf: the absolute path of the configuration file.
        program: the absolute path of ``orbitmq``.
        settings: all settings of the server by their keys.
        kept: the default paths of files and folders in which the server writes, by their settings.
        given: the keys in the configuration file.
    """

    server: str
    title: str
    conf: str
    program: str
    settings: Mapping[str, str]
    kept: Mapping[str, str]
    given: frozenset[str]

    def text(self) -> str:
        """The text of the systemd unit.

        Raises:
            UsageError: the server could not work in such a unit; the text names the setting.
        """
        self._check()
        words = [self.program, self.server, "-c", f"%d/{self.server}.conf"]
        command = " ".join([*(_word(word) for word in words[:3]), words[3], *self._overrides()])
        return "\n".join(
            [
                f"# Written by `orbitmq generate systemd {self.server}`, for systemd 250 and later.",
                "[Unit]",
                f"Description=OrbitMQ {_value(self.title)}",
                f"Documentation={PAGE}",
                "Wants=network-online.target",
                "After=network-online.target",
                "StartLimitIntervalSec=10min",
                "StartLimitBurst=20",
                "",
                "[Service]",
                "Type=notify",
                "NotifyAccess=main",
                f"ExecStart={command}",
                "User=orbitmq",
                "Group=orbitmq",
                *self._credentials(),
                *self._folders(),
                "",
                "# A start that reads much of the log asks for more time by itself. A server whose event",
                "# loop stands still is ended by the watchdog, writes where it stood, and is started again.",
                "TimeoutStartSec=60s",
                "TimeoutStopSec=30s",
                "WatchdogSec=30s",
                "Environment=PYTHONFAULTHANDLER=1",
                "Restart=on-failure",
                "RestartSec=2s",
                "# 2: the settings are wrong.",
                "RestartPreventExitStatus=2",
                "",
                SANDBOX.rstrip("\n"),
                "",
                "[Install]",
                "WantedBy=multi-user.target",
                "",
            ]
        )

    def _check(self) -> None:
        _shown("--program", self.program)
        for key in (*READ, *CREDENTIALS):
            value = self.settings.get(key, "")
            if value:
                _absolute(key, value)
                if key in READ:
                    _shown(key, value)
        if self._accounts_by and not self.settings[ACCOUNTS]:
            raise UsageError(
                f"{self._accounts_by}=true: expected {ACCOUNTS} beside it, the folder above "
                "conf/plain_acl.yml: the service does not see files beside its configuration file"
            )
        for key, value in self._places():
            _shown(key, value)
        for key in PORTS:
            port = int(self.settings.get(key, "0"))
            if 0 < port < 1024:
                raise UsageError(
                    f"{key}={port}: the unit's user may not listen below 1024: choose a higher port, or let "
                    "the firewall redirect this one to it"
                )

    @property
    def _accounts_by(self) -> str:
        """The setting because of which the server reads the accounts of ACL 1.0; empty if it does not."""
        return next((key for key in (ACL_1, MIGRATES) if self.settings.get(key) == "true"), "")

    def _places(self) -> Iterator[tuple[str, str]]:
        """Each file and folder in which the server writes, with its setting."""
        for key, otherwise in self.kept.items():
            value = self.settings.get(key, "") if key in self.given else otherwise
            if value:
                yield key, value
        if self._accounts_by:
            yield ACCOUNTS, self.settings[ACCOUNTS]

    def _overrides(self) -> Iterator[str]:
        for key, place in self._places():
            if key not in self.given:
                yield f"--set {_word(f'{key}={place}')}"
        for key, name in CREDENTIALS.items():
            if self.settings.get(key):
                yield f"--set {key}=%d/{name}"

    def _credentials(self) -> Iterator[str]:
        yield f"LoadCredential={self.server}.conf:{_value(self.conf)}"
        for key, name in CREDENTIALS.items():
            if path := self.settings.get(key):
                yield f"LoadCredential={name}:{_value(path)}"

    def _folders(self) -> Iterator[str]:
        found: dict[str, None] = {}
        for key, place in self._places():
            folder = place.rstrip("/") if key in FOLDERS else place.rpartition("/")[0]
            if key == ACCOUNTS:
                folder = f"{folder}/conf"
            for root, directive in MADE.items():
                if folder.startswith(root):
                    found[f"{directive}={_word(folder.removeprefix(root))}"] = None
                    break
            else:
                found[f"ReadWritePaths={_word(folder)}"] = None
        return iter(found)


def _absolute(key: str, path: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"{key}={path}: expected an absolute path: the service starts in another folder")


def _shown(key: str, path: str) -> None:
    """Refuse a path that the unit hides from the server."""
    _absolute(key, path)
    if path == "/" or any(path == hidden or path.startswith(f"{hidden}/") for hidden in HIDDEN):
        raise UsageError(
            f"{key}={path}: the unit hides the folders of users and temporary ones: choose another, such as "
            "/opt/orbitmq for programs, /etc/orbitmq for settings, /var/lib/orbitmq for data"
        )


def _value(text: str) -> str:
    """Text as the value of a systemd setting."""
    if re.search(r"[\x00-\x1f\x7f]", text) or text.endswith("\\"):
        raise UsageError(f"{text!r}: a unit of systemd cannot hold this")
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Text as one word of a systemd command line or list."""
    value = _value(text).replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./|$-]+", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def broker_unit(conf: str, path: str, program: str) -> str:
    """The unit of the broker whose configuration file has this text and this absolute path.

    Args:
        program: the absolute path of ``orbitmq``.

    Raises:
        UsageError: see :meth:`Unit.text`.
        ConfigError: a setting is invalid.
    """
    from orbitmq.broker.config import BrokerConfig

    config, _ = BrokerConfig.load(conf, path=path)
    name = config.broker_name
    title = f"broker {name}" if config.broker_id == 0 else f"broker {name}, slave {config.broker_id}"
    kept = {
        "storePathRootDir": f"{STATE}/{name}",
        "storePathCommitLog": "",
        "logFile": "",
        "auditLogFile": "",
    }
    given = frozenset(properties_text.parse(conf))
    return Unit("broker", title, path, program, config.to_properties(), kept, given).text()


def name_server_unit(conf: str, path: str, program: str) -> str:
    """The unit of the name server whose ``namesrv.conf`` has this text; see :func:`broker_unit`."""
    from orbitmq.nameserver.config import NameServerConfig

    config, _ = NameServerConfig.load(conf, path=path)
    state = f"{STATE}/nameserver"
    # The folder of users and rules, which a server without keys does not have.
    users = f"{state}/config" if config.authentication_enabled else ""
    kept = {
        "kvConfigPath": f"{state}/kvConfig.json",
        "authConfigPath": users,
        "logFile": "",
        "auditLogFile": "",
    }
    given = frozenset(properties_text.parse(conf))
    return Unit("nameserver", "name server", path, program, config.to_properties(), kept, given).text()
