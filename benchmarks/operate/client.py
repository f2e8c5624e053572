"""The costs of keys and TLS for a client and the command line: signing, ``--help``, ``topic list``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import keys
from benchmarks.operate.certificates import made
from benchmarks.operate.model import Found, Line, Place, Row, middle
from benchmarks.operate.sides import STARTED_WITHIN_S
from benchmarks.servers import Ours, ServerError

from orbitmq.wire.signing import Signer

SIGNATURES = 20_000
LINES = (
    Line("sign", "signing a send of 128 B in our client", "us", most=3),
    Line("help", "`orbitmq --help`", "ms", most=30),
    Line("list", "`orbitmq topic list` with TLS and keys", "s", most=0.4),
)


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row."""
    times = place.rounds(15, 3)
    with _cluster(place.folder) as environment:
        until = time.monotonic() + STARTED_WITHIN_S
        while _seconds(environment, "topic", "list") is None:
            if time.monotonic() > until:
                raise ServerError("orbitmq topic list fails")
        listed = [_seconds(environment, "topic", "list") or 0.0 for _ in range(times)]
    helped = [_seconds({}, "--help") or 0.0 for _ in range(times)]
    return {
        "sign": middle([_sign_us() for _ in range(times)]),
        "help": middle([seconds * 1000 for seconds in helped]),
        "list": middle(listed),
    }


def _sign_us() -> float:
    """The CPU time of one signature, as the mean of many, in microseconds."""
    command, signer = keys.frames()["send"], Signer(keys.ROOT)
    begin = time.process_time()
    for _ in range(SIGNATURES):
        signer.sign(command, keys.ROOT)
    return (time.process_time() - begin) / SIGNATURES * 1e6


def _seconds(environment: Mapping[str, str], *words: str) -> float | None:
    """The duration of a command; None if it fails."""
    begin = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).parent / "orbitmq", *words],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
    )
    return time.monotonic() - begin if done.returncode == 0 else None


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A name server and a broker that accept only TLS and signed requests; yields the environment to reach
    them.
    """
    pair = made(folder)
    user = {"accessKey": keys.ROOT.access_key, "secretKey": "a long secret"}
    secured: dict[str, Any] = {
        **keys.ON, **pair.server, "tls.server.mode": "enforcing", "tls.enable": "true",
        "tls.client.trustCertPath": str(pair.ca), "innerClientAuthenticationCredentials": json.dumps(user),
    }  # fmt: skip
    credentials = folder / "credentials"
    credentials.write_text("".join(f"{key}={value}\n" for key, value in user.items()))
    credentials.chmod(0o600)
    with contextlib.ExitStack() as running:
        name_server = Ours().name_server(folder, wait=False, **secured)
        running.callback(name_server.stop)
        broker = Ours().broker(folder, name_server.address, wait=False, **secured)
        running.callback(broker.stop)
        yield {
            "NAMESRV_ADDR": name_server.address,
            "ORBITMQ_CREDENTIALS_FILE": str(credentials),
            "ORBITMQ_TLS_CA": str(pair.ca),
        }


ROW = Row("client", "our client and the command line", LINES, take)
