"""Files for containers: the Containerfile, and the output of ``orbitmq generate``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbitmq.cli.containers import compose, kubernetes
from orbitmq.cli.main import main
from orbitmq.cli.serve import _overrides, _parser

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
SERVERS = {"nameserver", "broker"}


def settings(words: list[str]) -> dict[str, str]:
    """The settings in a server's command line, which the server has to accept."""
    return _overrides(_parser(words[0]).parse_args(words[1:]))


@pytest.mark.behaviour("CS-17")
@pytest.mark.parametrize(
    ("name", "text"),
    [("compose.yaml", compose("orbitmq:1", "10.0.0.5")), ("kubernetes.yaml", kubernetes("orbitmq:1"))],
)
def test_the_file_is_the_golden_one(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.behaviour("CS-17")
@pytest.mark.parametrize("host", [None, "10.0.0.5"])
def test_compose_runs_both_servers_with_few_rights(host: str | None) -> None:
    services: dict[str, Any] = yaml.safe_load(compose("orbitmq:1", host))["services"]
    assert services.keys() == SERVERS
    for name, service in services.items():
        assert service["image"] == "orbitmq:1"
        assert service["user"] == "10001:10001"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["volumes"] == [f"{name}:/data"]
        given = settings(service["command"])
        assert given["metricsExporterType"] == "PROM"
        assert given["metricsPromExporterPort"] == "5557"
        assert ("ports" in service) == (host is not None)
    assert settings(services["broker"]["command"])["brokerIP1"] == (host or "broker")


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects by kind and name."""
    found = {}
    for each in yaml.safe_load_all(kubernetes("orbitmq:1")):
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.mark.behaviour("CS-17")
def test_each_kind_of_server_has_its_set_its_service_and_its_budget() -> None:
    found = documents()
    names = {f"orbitmq-{server}" for server in SERVERS}
    kinds = ("Service", "PodDisruptionBudget", "StatefulSet")
    assert found.keys() == {(kind, name) for kind in kinds for name in names}
    for name in names:
        labels = {"app": name}
        assert found["Service", name]["spec"]["selector"] == labels
        budget = found["PodDisruptionBudget", name]["spec"]
        assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        assert found["StatefulSet", name]["spec"]["template"]["metadata"]["labels"] == labels


@pytest.mark.behaviour("CS-17")
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_pod_is_watched_and_has_few_rights(server: str) -> None:
    spec = documents()["StatefulSet", f"orbitmq-{server}"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert {"name": "metrics", "containerPort": 5557} in container["ports"]
    given = settings(container["args"])
    assert container["args"][0] == server
    assert given["metricsPromExporterPort"] == "5557"
    assert given["metricsPromExporterHost"] == "0.0.0.0"
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.behaviour("CS-17")
def test_both_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "compose", "--image", "mq:2", "--host", "mq.example.org"]) == 0
    assert capsys.readouterr().out == compose("mq:2", "mq.example.org")
    assert main(["generate", "kubernetes", "--image", "mq:2"]) == 0
    assert capsys.readouterr().out == kubernetes("mq:2")


@pytest.mark.behaviour("CS-17")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compose", "--image", "a b"], "--image a b: expected the name of a container image"),
        (["kubernetes", "--image", '"x'], '--image "x: expected the name of a container image'),
        (["compose", "--host", "0.0.0.0"], "--host=0.0.0.0: expected the address of this machine"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err


CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8")


def instruction(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", CONTAINERFILE, re.MULTILINE)


@pytest.mark.behaviour("CS-17")
def test_the_image_is_built_in_one_stage_and_runs_in_another_as_its_user() -> None:
    build, final = CONTAINERFILE.split("\nFROM ")[1:]
    assert " AS build\n" in build
    assert "COPY --from=build /opt/orbitmq /opt/orbitmq" in final
    assert "pip" not in final
    assert instruction("USER") == ["10001:10001"]
    [command] = instruction("CMD")
    given = settings(json.loads(command))
    assert given["storePathRootDir"] == "/data"
    assert (given["metricsExporterType"], given["metricsPromExporterPort"]) == ("PROM", "5557")
    [health] = instruction("HEALTHCHECK")
    assert "http://127.0.0.1:5557/healthz" in health
    compile(json.loads(health.partition("CMD ")[2])[2], "HEALTHCHECK", "exec")
