"""The files of users and rules on a real disk: nobody else on the machine may read them."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from orbitmq import Credentials
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime.system import system_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

ROOT = Credentials("root", "root-secret")


@pytest.mark.behaviour("AU-18")
def test_tables_backups_and_journal_have_mode_0600(tmp_path: Path) -> None:
    config = BrokerConfig(
        listen_port=0,
        bind_address="127.0.0.1",
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=1 << 20,
        authentication_enabled=True,
        init_authentication_user=ROOT,
    )
    folder = tmp_path / "config"
    seen: dict[str, int] = {}

    def look() -> None:
        for path in folder.iterdir():
            if b"secret" in path.read_bytes():
                seen[path.name] = stat.S_IMODE(path.stat().st_mode)

    async def main() -> None:
        for name in ("one", "two"):
            async with Broker(system_runtime(), config) as broker:
                client = RemotingClient(broker.runtime, identity=Identity(ROOT))
                user = UserInfo(password=f"secret of {name}").encode()
                command = Command(RequestCode.AUTH_CREATE_USER, {"username": name}, user)
                answer = await client.request(f"127.0.0.1:{broker.port}", command, 10_000)
                assert (answer.code, answer.remark) == (0, None)
                look()
                await client.close()
            look()

    before = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)
    assert {name.rstrip("0123456789") for name in seen} == {"tables.journal.", "users.json", "users.json.bak"}
    assert set(seen.values()) == {0o600}
