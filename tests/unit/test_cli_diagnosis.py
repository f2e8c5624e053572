"""The findings of ``orbitmq doctor`` from the data that it collected."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from orbitmq.admin import BrokerInfo
from orbitmq.cli.diagnosis import FEWEST_DESCRIPTORS, Finding, Machine, Seen, findings
from orbitmq.cli.doctor import _write
from orbitmq.cli.main import main
from orbitmq.cli.serve import connections_of

NOW_MS = 1_800_000_000_000
GOOD = Machine(compiled=True, uvloop=True, descriptors=1_048_576)


def broker(number: int = 0, address: str = "10.0.0.5:10911") -> BrokerInfo:
    return BrokerInfo("c", f"broker-{number}", 0, address)


def status(off_s: int = 0, p99: str = "1.50", version: str = "V5_5_0") -> dict[str, str]:
    return {
        "bootTimestamp": str(NOW_MS - 90_061_000 + off_s * 1000),
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
        "putLatency99": p99,
        "brokerVersionDesc": version,
    }


def wrong(found: list[Finding]) -> dict[str, str]:
    return {one.check: one.text for one in found if not one.fine}


@pytest.mark.behaviour("CS-13")
def test_a_sound_cluster_has_nothing_to_do() -> None:
    seen = Seen(broker(), "", NOW_MS, NOW_MS, status(), {"authenticationEnabled": "true"})
    found = findings(GOOD, [seen])
    assert wrong(found) == {}
    assert {one.check for one in found} == {
        *("compiled modules", "event loop", "file descriptors", "file modes", "versions"),
        *("address", "clock", "flush time", "open doors"),
    }


@pytest.mark.behaviour("CS-13")
def test_a_broker_that_observes_is_not_closed() -> None:
    settings = {"authenticationEnabled": "true", "authMode": "observe"}
    (found,) = [
        one
        for one in findings(GOOD, [Seen(broker(), "", NOW_MS, NOW_MS, status(), settings)])
        if one.check == "open doors"
    ]
    assert not found.fine
    assert found.text == "counts what it would refuse, and refuses nothing: authMode=observe"
    assert found.fix.endswith("orbitmq broker config set broker-0 authMode=enforce")


@pytest.mark.behaviour("CS-13")
def test_each_fault_has_its_fix() -> None:
    machine = Machine(compiled=False, uvloop=False, descriptors=1024, open_file="x is open to other users")
    assert set(wrong(findings(machine, []))) == {
        *("compiled modules", "event loop", "file descriptors", "file modes"),
    }
    seen = Seen(
        broker(), "", NOW_MS, NOW_MS, status(off_s=-60, p99="250.00"), {"authenticationEnabled": "false"}
    )
    other = Seen(broker(1), "", NOW_MS, NOW_MS, status(version="V5_3_0"))
    found = wrong(findings(GOOD, [seen, other, Seen(broker(2, "172.17.0.2:10911"), "no answer in 5 s")]))
    assert found == {
        "versions": "V5_3_0, V5_5_0",
        "clock": "60 s behind this machine",
        "flush time": "99 of 100 sends were stored within 250 ms",
        "open doors": "everybody who reaches 10.0.0.5:10911 may read, write and delete: it requires no keys",
        "address": "172.17.0.2:10911 does not answer: no answer in 5 s",
    }
    closing = Seen(broker(), "connection to 10.0.0.5:10911 lost; it may ask for TLS", closed=True)
    *_, found_closed = findings(GOOD, [closing])
    assert "do what the text says" in found_closed.fix
    refusing = Seen(broker(), "10.0.0.5:10911 does not permit it", refuses=True)
    assert wrong(findings(GOOD, [refusing])) == {"rights": "it refuses: 10.0.0.5:10911 does not permit it"}


@pytest.mark.behaviour("CS-13")
def test_descriptors_suffice_for_the_default_of_connections() -> None:
    """The numbers are those of docs/operations.md."""
    assert connections_of(10_000, FEWEST_DESCRIPTORS) == 10_000
    for descriptors, few in ((FEWEST_DESCRIPTORS, False), (FEWEST_DESCRIPTORS - 1, True)):
        machine = Machine(compiled=True, uvloop=True, descriptors=descriptors)
        assert ("file descriptors" in wrong(findings(machine, []))) == few


@pytest.mark.behaviour("CS-13")
def test_without_a_send_no_time_is_shown() -> None:
    found = findings(GOOD, [Seen(broker(), "", NOW_MS, NOW_MS, status(p99="0.00"))])
    assert [one.text for one in found if one.check == "flush time"] == ["no send was measured yet"]


@pytest.mark.behaviour("CS-13")
def test_a_broker_that_answers_slowly_has_the_right_time() -> None:
    assert "clock" not in wrong(
        findings(GOOD, [Seen(broker(), "", NOW_MS - 60_000, NOW_MS, status(off_s=-30))])
    )
    assert "clock" in wrong(findings(GOOD, [Seen(broker(), "", NOW_MS - 60_000, NOW_MS, status(off_s=30))]))


@pytest.mark.behaviour("CS-13")
def test_a_broker_that_says_little_is_no_fault() -> None:
    odd = {"bootTimestamp": "soon", "putLatency99": "fast", "runtime": "long"}
    assert (
        wrong(
            findings(
                GOOD, [Seen(broker(), "", NOW_MS, NOW_MS, odd), Seen(broker(1), "", NOW_MS, NOW_MS, odd)]
            )
        )
        == {}
    )


@pytest.mark.behaviour("CS-13")
def test_the_bundle_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    _write(str(path), [Finding("clock", "here", "fine")], [Seen(broker(), "", 1, 1, {"a": "b"}, {"c": "d"})])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert json.loads(path.read_text())["brokers"][0]["settings"] == {"c": "d"}


@pytest.mark.behaviour("CS-13")
def test_without_a_cluster_the_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-n", "127.0.0.1:1"]) == 1
    out, err = capsys.readouterr()
    assert "compiled modules" in out
    assert "no name server gave an answer" in out
    assert "say where they are: --name-servers or --context" in out
    assert "nothing to do" not in out
    assert err == ""
