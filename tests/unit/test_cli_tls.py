"""``orbitmq tls``: an authority and certificates that servers, clients and openssl accept."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from orbitmq import Tls
from orbitmq.cli.main import main
from orbitmq.runtime import system_runtime
from orbitmq.runtime.server_tls import CertificateFiles, ServerTls, TlsMode

pytestmark = pytest.mark.behaviour("TL-20")


def run(*words: str, code: int = 0) -> None:
    assert main(["tls", *words]) == code


def test_an_authority_and_its_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca, server, client = (str(tmp_path / name) for name in ("ca", "mq-1", "app"))
    run("make-ca", ca)
    assert f"wrote {ca}.pem and {ca}.key" in capsys.readouterr().out
    run("make-cert", ca, server, "--host", "10.0.0.5", "--host", "mq-1.example", "--days", "30")
    run("make-cert", ca, client)
    for name in (ca, server, client):
        assert stat.S_IMODE(Path(f"{name}.key").stat().st_mode) == 0o600
    files = CertificateFiles(f"{server}.pem", f"{server}.key", authorities=f"{ca}.pem", required=True)
    ServerTls(system_runtime(), TlsMode.ENFORCING, files).check()
    Tls(ca=f"{ca}.pem", cert=f"{client}.pem", key=f"{client}.key")
    for name, purpose in ((server, "sslserver"), (client, "sslclient")):
        words = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", f"{ca}.pem"]
        done = subprocess.run([*words, f"{name}.pem"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", f"{server}.pem"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "IP Address:10.0.0.5, DNS:mq-1.example" in shown
    assert "CN = mq-1" in shown


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca = str(tmp_path / "ca")
    run("make-ca", ca)
    before = Path(f"{ca}.key").read_bytes()
    run("make-ca", ca, code=2)
    assert f"{ca}.pem is there already: give another name, or remove it" in capsys.readouterr().err
    assert Path(f"{ca}.key").read_bytes() == before


def test_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca, other = str(tmp_path / "ca"), str(tmp_path / "other")
    run("make-ca", ca)
    run("make-ca", other)
    run("make-cert", ca, str(tmp_path / "leaf"))
    mixed = tmp_path / "mixed"
    Path(f"{mixed}.pem").write_bytes(Path(f"{ca}.pem").read_bytes())
    Path(f"{mixed}.key").write_bytes(Path(f"{other}.key").read_bytes())
    Path(tmp_path / "words.pem").write_text("no certificate")
    Path(tmp_path / "words.key").write_text("no key")
    capsys.readouterr()
    for words, text in (
        (("make-cert", str(tmp_path / "none"), "x"), "none.pem: make the authority by orbitmq tls make-ca"),
        (("make-cert", str(tmp_path / "leaf"), "x"), "is not one of an authority"),
        (("make-cert", str(mixed), "x"), "do not belong together"),
        (("make-cert", str(tmp_path / "words"), "x"), "not the certificate and the key"),
        (("make-cert", ca, str(tmp_path / "x"), "--days", "0"), "--days 0: expected 1 or more"),
        (("make-cert", ca, str(tmp_path / "x"), "--days", "5000"), "give fewer days"),
        (("make-ca", str(tmp_path / "x"), "--days", "36501"), "expected 36500 or fewer"),
        (("make-ca", str(tmp_path / ("x" * 65))), "1 to 64 characters"),
        (("make-cert", ca, str(tmp_path / "x"), "--host", "ö.example"), "ö.example"),
        (("make-cert", ca, str(tmp_path / "x"), "--host", ""), "host name"),
    ):
        assert main(["tls", *words]) in (1, 2)
        said = capsys.readouterr().err
        assert text in said, (words, said)
        assert said.count("\n") == 1
