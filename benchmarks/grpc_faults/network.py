"""Client machines: network namespaces that can be cut off from the servers and connected again.

The whole run has its own network, so that this machine's network does not change. Each client machine is a
namespace behind a pair of interfaces; a queue of size zero at one end drops everything that leaves there.
Clients reach both systems at the addresses that these announce, without a relay.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.servers import child_settings
from tests.interop.grpc_clients import Client

# The address at which clients reach all servers.
SERVERS: Final = "10.213.0.1"
_NEW_NETWORK: Final = 0x40000000
_UNSHARED_WITHIN_S: Final = 10.0


class NoNetworkError(Exception):
    """Network namespaces are not available; the text says what is missing."""


def enter() -> None:
    """Give this thread, and the processes that it starts, a new network.

    Raises:
        NoNetworkError: this is not permitted, or the commands are missing.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise NoNetworkError(f"no network of its own, which takes root: {os.strerror(ctypes.get_errno())}")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{SERVERS}/32", "dev", "lo")


class Machine:
    """One client machine.

    Args:
        number: the machine's number, from 1 to 250, unique in the run.
    """

    def __init__(self, number: int) -> None:
        self._near = f"machine{number}"
        here, there = f"10.213.{number}.1", f"10.213.{number}.2"
        near_mac, far_mac = f"02:00:00:00:{number:02x}:01", f"02:00:00:00:{number:02x}:02"
        # The namespace exists as long as this process.
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=child_settings)
        self._enter = ("nsenter", "--target", str(self._holder.pid), "--net")
        self._wait()
        pair = ("type", "veth", "peer", "name", "eth0", "address", far_mac, "netns", str(self._holder.pid))
        _run("ip", "link", "add", self._near, "address", near_mac, *pair)
        _run("ip", "address", "add", f"{here}/30", "dev", self._near)
        _run("ip", "link", "set", self._near, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{there}/30", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", here),
            # A permanent entry, so that a machine that is cut off keeps its neighbour's address.
            ("neighbour", "replace", here, "lladdr", near_mac, "dev", "eth0", "nud", "permanent"),
        ):
            _run(*self._enter, "ip", *words)
        _run("ip", "neighbour", "replace", there, "lladdr", far_mac, "dev", self._near, "nud", "permanent")
        self._dropping: list[tuple[str, ...]] = []

    def _wait(self) -> None:
        ours, until = os.readlink("/proc/self/ns/net"), time.monotonic() + _UNSHARED_WITHIN_S
        while os.readlink(Path(f"/proc/{self._holder.pid}/ns/net")) == ours:
            if time.monotonic() > until or self._holder.poll() is not None:
                raise NoNetworkError("no namespace for a client machine")
            time.sleep(0.01)

    def client(self, client: Client) -> Client:
        """This client with a command that runs it on this machine."""
        return replace(client, command=[*self._enter, *client.command])

    def cut_off(self) -> None:
        """Let nothing pass in either direction."""
        self.lose_answers()
        self._drop(*self._enter, "tc", "qdisc", "add", "dev", "eth0")

    def lose_answers(self) -> None:
        """Let requests of clients pass, but nothing from servers."""
        self._drop("tc", "qdisc", "add", "dev", self._near)

    def _drop(self, *words: str) -> None:
        _run(*words, "root", "pfifo", "limit", "0")
        self._dropping.append(words)

    def connect(self) -> None:
        """Let everything pass again."""
        while self._dropping:
            words = ["delete" if word == "add" else word for word in self._dropping.pop()]
            _run(*words, "root")

    def close(self) -> None:
        """Remove the machine."""
        self._holder.kill()
        self._holder.wait()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        raise NoNetworkError(f"no {command[0]} on this machine") from None
    if done.returncode:
        raise NoNetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
