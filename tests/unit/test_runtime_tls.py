"""The TLS contexts of servers."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority

from orbitmq.runtime.tls import server_context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=str)
def test_a_client_that_comes_again_resumes_its_session(tmp_path: Path, version: ssl.TLSVersion) -> None:
    made = Authority(tmp_path).issue("server", ["server"])
    server = server_context(Path(made.cert).read_bytes(), Path(made.key).read_bytes(), [])
    client = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    client.maximum_version = version
    session = None
    for number in range(3):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        here = server.wrap_bio(to_server, to_client, server_side=True)
        there = client.wrap_bio(to_client, to_server, server_hostname="server", session=session)
        for end in (there, here) * 2:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        there.write(b"ask")
        assert here.read(10) == b"ask"
        here.write(b"answer")
        assert there.read(10) == b"answer"
        assert there.session_reused == (number > 0)
        session = there.session
