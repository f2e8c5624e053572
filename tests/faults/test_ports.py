"""Ports of servers that are killed: nobody gets them while such a server is down."""

from __future__ import annotations

import socket
import subprocess
import sys

from benchmarks.ports import claim, free_ports
from benchmarks.servers import ROOT

CLAIM = (
    "import sys; from benchmarks.ports import claim; print(claim(range(int(sys.argv[1]), int(sys.argv[2]))))"
)


def claimed_elsewhere(ports: range) -> bool:
    """Whether another process gets these ports."""
    command = [sys.executable, "-c", CLAIM, str(ports.start), str(ports.stop)]
    return (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "True"
    )


def test_what_was_handed_out_is_not_handed_out_again_though_nobody_listens() -> None:
    first, second = free_ports(5), free_ports(5)
    assert set(range(first, first + 5)).isdisjoint(range(second, second + 5))


def test_another_process_gets_no_port_that_this_one_has_claimed() -> None:
    first = free_ports(3)
    assert not claimed_elsewhere(range(first + 2, first + 4))


def test_a_claim_ends_with_its_process() -> None:
    first = free_ports() + 1
    blocks = (range(port, port + 2) for port in range(first, first + 100))
    assert claim(next(block for block in blocks if claimed_elsewhere(block)))


def test_a_port_that_is_used_on_another_loopback_address_is_not_free() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.7", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert not claim(range(port, port + 1))
