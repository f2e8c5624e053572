"""Certificates made by openssl and by ``orbitmq tls``: those that ended, and those of users."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq import Message, Producer, Tls
from orbitmq.errors import OrbitError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import system_runtime
from orbitmq.runtime.loop_thread import LoopThread
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command as Request
from orbitmq.wire.frame import FrameDecoder, encode_frame

CONFIG = """
[ca]
default_ca = own
[own]
new_certs_dir = .
database = index.txt
serial = serial
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
"""
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
TLS_VARIABLES = {"ORBITMQ_TLS_CA": "ca", "ORBITMQ_TLS_CERT": "cert", "ORBITMQ_TLS_KEY": "key"}


class OpenSsl:
    """An authority, and what it signs, by the program ``openssl``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "ca.cnf").write_text(CONFIG)
        (folder / "index.txt").touch()
        (folder / "serial").write_text("01\n")
        self._run("req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
        self.ca = str(folder / "ca.pem")

    def issue(self, name: str, hosts: str = "", *, ended: bool = False) -> tuple[str, str]:
        """The files of a certificate and its key."""
        names = ["-addext", f"subjectAltName={hosts}"] if hosts else []
        request = ["-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"]
        self._run("req", "-new", *NEW_KEY, *request, *names)
        times = ["20200101000000Z", "20200201000000Z"] if ended else ["20200101000000Z", "20991231235959Z"]
        signing = ["-cert", "ca.pem", "-keyfile", "ca.key", "-in", f"{name}.csr", "-out", f"{name}.pem"]
        dates = ["-startdate", times[0], "-enddate", times[1]]
        self._run("ca", "-batch", "-config", "ca.cnf", "-notext", *signing, *dates)
        return str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self._folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()


@contextmanager
def name_server(folder: Path, cert: tuple[str, str], **more: str) -> Iterator[str]:
    """A name server with this certificate, on a thread of its own; its address. ``_`` stands for a dot."""
    given = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(folder / "kv.json"),
        "authConfigPath": str(folder / "access"),
        "tls.server.mode": "enforcing",
        "tls.server.certPath": cert[0],
        "tls.server.keyPath": cert[1],
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    config, _ = NameServerConfig.load("", given)
    loop = LoopThread("test-name-server")
    server = NameServer(system_runtime(), config)
    try:
        loop.wait(server.start())
        try:
            yield f"127.0.0.1:{server.port}"
        finally:
            loop.wait(server.stop())
    finally:
        loop.stop()


def mutual(ca: str) -> Mapping[str, str]:
    return {
        "tls_server_need_client_auth": "require",
        "tls_server_authClient": "true",
        "tls_server_trustCertPath": ca,
    }


def said_to_a_producer(address: str, tls: Tls) -> str:
    async def main() -> str:
        try:
            async with Producer("pg", name_servers=address, tls=tls, timeout=20) as producer:
                await producer.send(Message("orders", b"x"))
        except OrbitError as error:
            return str(error)
        return "sent"

    return asyncio.run(main())


def speaking(monkeypatch: pytest.MonkeyPatch, tls: Tls) -> None:
    """Let the command line speak TLS with these files."""
    for name, field in TLS_VARIABLES.items():
        value = getattr(tls, field)
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.behaviour("TL-03")
def test_a_server_whose_certificate_has_ended(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = OpenSsl(tmp_path / "tls")
    tls = Tls(ca=made.ca)
    with name_server(tmp_path, made.issue("mq-1", "IP:127.0.0.1", ended=True)) as address:
        text = f"the certificate of {address}, or of its authority, has expired: renew it there"
        assert text in said_to_a_producer(address, tls)
        speaking(monkeypatch, tls)
        assert text in command("topic", "list", "-n", address, code=1)
        assert command("check", "cert", "-n", address, code=2, out=True) == f"CRITICAL: {text}\n"


@pytest.mark.behaviour("TL-04")
def test_a_client_whose_certificate_has_ended(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = OpenSsl(tmp_path / "tls")
    cert = made.issue("mq-1", "IP:127.0.0.1")
    old, good = (made.issue(name, ended=ended) for name, ended in (("old", True), ("good", False)))
    with name_server(tmp_path, cert, **mutual(made.ca)) as address:
        tls = Tls(ca=made.ca, cert=old[0], key=old[1])
        text = f"{address} says that this client's certificate (%s) has expired"
        assert text % "Tls.cert" in said_to_a_producer(address, tls)
        speaking(monkeypatch, tls)
        text %= "--cert of the context or ORBITMQ_TLS_CERT"
        assert text in command("topic", "list", "-n", address, code=1)
        assert text in command("check", "cert", "-n", address, code=3, out=True)
        speaking(monkeypatch, Tls(ca=made.ca, cert=good[0], key=good[1]))
        assert "expired" not in command("check", "cert", "-n", address, out=True)


@pytest.mark.behaviour("AU-47")
def test_the_command_line_is_the_user_of_its_certificate(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    command("tls", "make-ca", "ca")
    command("tls", "make-cert", "ca", "mq-1", "--host", "127.0.0.1")
    for name in ("root", "app"):
        command("tls", "make-cert", "ca", name)
    files = {name: (str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}.key")) for name in ("root", "app")}
    ca = str(tmp_path / "ca.pem")
    given = {
        "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret-1"}',
        "tls_server_clientCertificateUser": "cn",
        **mutual(ca),
    }
    server = (str(tmp_path / "mq-1.pem"), str(tmp_path / "mq-1.key"))
    with name_server(tmp_path, server, **given) as address:
        speaking(monkeypatch, Tls(ca=ca, cert=files["root"][0], key=files["root"][1]))
        command("topic", "list", "-n", address)
        speaking(monkeypatch, Tls(ca=ca, cert=files["app"][0], key=files["app"][1]))
        said = command("topic", "list", "-n", address, code=1)
        assert "to 'app': User:app of the client's certificate is unknown." in said


@pytest.mark.behaviour("AU-47", "AU-48")
def test_a_resumed_session_has_the_user_of_its_certificate(tmp_path: Path) -> None:
    made = OpenSsl(tmp_path / "tls")
    given = {
        "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret-1"}',
        "tls_server_clientCertificateUser": "cn",
        **mutual(made.ca),
    }
    remarks = {}
    with name_server(tmp_path, made.issue("mq-1", "IP:127.0.0.1"), **given) as address:
        for user in ("root", "app"):
            context = ssl.create_default_context(cafile=made.ca)
            context.load_cert_chain(*made.issue(user))
            session: ssl.SSLSession | None = None
            for resumed in (False, True):
                with (
                    socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 60) as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection,
                ):
                    assert connection.session_reused is resumed
                    connection.sendall(encode_frame(Request(RequestCode.GET_BROKER_CLUSTER_INFO)))
                    decoder = FrameDecoder()
                    answers: list[Request] = []
                    while not answers:
                        decoder.feed(connection.recv(1 << 16))
                        answers = list(decoder.commands())
                    remarks[user, resumed] = (answers[0].code, answers[0].remark)
                    session = connection.session
    unknown = "User:app of the client's certificate is unknown."
    for resumed in (False, True):
        assert remarks["root", resumed] == (ResponseCode.SUCCESS, None)
        assert remarks["app", resumed] == (ResponseCode.NO_PERMISSION, unknown)
