"""The texts of failed connections: the address once, and the system's own words."""

from __future__ import annotations

import socket

import pytest

from orbitmq.transport.errors import ConnectError, connect_error

REFUSED = "Connect call failed ('127.0.0.1', 1)"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(111, REFUSED), "Connection refused"),
        (
            OSError(f"Multiple: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] {REFUSED}"),
            "Connection refused",
        ),
        (
            OSError(f"Multiple: [Errno 101] Connect call failed ('::1', 1, 0, 0), [Errno 111] {REFUSED}"),
            "Network is unreachable, Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("no route in this world"), "no route in this world"),
    ],
)
def test_the_address_stands_once(error: OSError, says: str) -> None:
    made = connect_error("h:1", error)
    assert isinstance(made, ConnectError)
    assert (str(made), made.address) == (f"cannot connect to h:1: {says}", "h:1")
