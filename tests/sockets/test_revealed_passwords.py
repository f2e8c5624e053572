"""With ``authRevealPasswords`` passwords are shown over TLS, where an address proves nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.certificates import Authority

from orbitmq import Credentials, Tls
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime import system_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

ROOT = Credentials("root", "secret of root")


@pytest.mark.behaviour("AU-46")
def test_passwords_are_shown_over_tls_and_not_in_clear(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.issue("server")
    config, _ = BrokerConfig.load(
        "",
        {
            "storePathRootDir": str(tmp_path / "store"),
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "mappedFileSizeCommitLog": "1048576",
            "authenticationEnabled": "true",
            "initAuthenticationUser": '{"username":"root","password":"secret of root"}',
            "authRevealPasswords": "true",
            # Behind a proxy here every client would have an address of this machine.
            "proxyProtocolTrusted": "10.0.0.1",
            "tls.server.mode": "permissive",
            "tls.server.certPath": str(made.cert),
            "tls.server.keyPath": str(made.key),
        },
    )

    async def shown(broker: Broker, tls: Tls | None) -> str | None:
        client = RemotingClient(system_runtime(), identity=Identity(ROOT, tls))
        try:
            command = Command(RequestCode.AUTH_GET_USER, {"username": "root"})
            answer = await client.request(f"127.0.0.1:{broker.port}", command, 20_000)
        finally:
            await client.close()
        return UserInfo.decode(answer.body).password

    async def main() -> None:
        async with Broker(system_runtime(), config) as broker:
            assert await shown(broker, None) is None
            assert await shown(broker, Tls(ca=authority.ca)) == "secret of root"

    asyncio.run(main())
