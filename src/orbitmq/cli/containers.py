"""Files that run a cluster in containers: for Docker Compose and for Kubernetes."""

from __future__ import annotations

import json
import re
from typing import Final

# The folder in which the image of the Containerfile keeps data.
DATA: Final = "/data"
# The port for health checks of both servers, each in its own container.
HEALTH_PORT: Final = 5557

COMPOSE: Final = """\
# Written by `orbitmq generate compose`: a name server and a broker. How the image is made:
# https://github.com/orbitmq/orbitmq/blob/main/docs/installing.md
name: orbitmq

x-server: &server
  image: IMAGE
  user: "10001:10001"
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  ulimits: {nofile: 65536}
  stop_grace_period: 30s
  restart: unless-stopped
  # The image asks http://127.0.0.1:5557/healthz by itself.

services:
  nameserver:
    <<: *server
    hostname: nameserver
    command:
      - nameserver
      - --set=kvConfigPath=/data/kvConfig.json
      - --set=metricsExporterType=PROM
      - --set=metricsPromExporterPort=5557
NAME_SERVER_PORTS
    volumes: ["nameserver:/data"]

  broker:
    <<: *server
    hostname: broker
    depends_on:
      nameserver: {condition: service_healthy}
    command:
      - broker
      - --name-servers=nameserver:9876
      - --set=brokerIP1=HOST
      - --set=storePathRootDir=/data
      - --set=metricsExporterType=PROM
      - --set=metricsPromExporterPort=5557
BROKER_PORTS
    volumes: ["broker:/data"]

volumes:
  nameserver:
  broker:
"""

KUBERNETES: Final = """\
# Written by `orbitmq generate kubernetes`: two name servers, two brokers without replicas.
apiVersion: v1
kind: Service
metadata: {name: orbitmq-nameserver, labels: {app: orbitmq-nameserver}}
spec:
  clusterIP: None
  selector: {app: orbitmq-nameserver}
  ports: [{name: remoting, port: 9876}]
---
apiVersion: v1
kind: Service
metadata: {name: orbitmq-broker, labels: {app: orbitmq-broker}}
spec:
  clusterIP: None
  selector: {app: orbitmq-broker}
  ports: [{name: remoting, port: 10911}, {name: grpc, port: 8081}, {name: metrics, port: 5557}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: orbitmq-nameserver}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: orbitmq-nameserver}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: orbitmq-broker}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: orbitmq-broker}}
"""

# The objects of one kind of server. A pod is restarted if its event loop hangs, and gets no requests from its
# service while it is not ready.
STATEFUL_SET: Final = """\
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NAME, labels: {app: NAME}}
spec:
  serviceName: NAME
  replicas: 2
  # All at once at the start; one by one, each after the one before is ready, at a change.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  minReadySeconds: 10
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {type: RuntimeDefault}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {matchLabels: {app: NAME}}
      containers:
        - name: SERVER
          image: IMAGE
          args:
ARGUMENTS
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
          ports: [PORTS]
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            requests: {cpu: CPU, memory: MEMORY}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: tmp, emptyDir: {}}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: STORAGE}}
"""
# Health and metrics, on an address that the kubelet reaches.
_METRICS: Final = (
    "--set=metricsExporterType=PROM",
    "--set=metricsPromExporterHost=0.0.0.0",
    f"--set=metricsPromExporterPort={HEALTH_PORT}",
)


def compose(image: str, host: str | None) -> str:
    """A file for Docker Compose, with a name server and a broker.

    Args:
        host: the address by which clients outside of the containers reach the servers; None without such
            clients.
    """
    publishes = host is not None
    found = {
        "IMAGE": json.dumps(image),
        "HOST": host or "broker",
        "NAME_SERVER_PORTS": _ports(9876) if publishes else "    # Clients are in this network only.",
        "BROKER_PORTS": _ports(10909, 10911, 8081)
        if publishes
        else "    # Clients are in this network only.",
    }
    return _filled(COMPOSE, found)


def kubernetes(image: str) -> str:
    """A StatefulSet of name servers and one of brokers, with their services and disruption budgets."""
    name_server = {
        "NAME": "orbitmq-nameserver",
        "SERVER": "nameserver",
        "ARGUMENTS": _arguments("nameserver", f"--set=kvConfigPath={DATA}/kvConfig.json", *_METRICS),
        "PORTS": "{name: remoting, containerPort: 9876}, {name: metrics, containerPort: 5557}",
        "CPU": "100m",
        "MEMORY": "128Mi",
        "STORAGE": "1Gi",
    }
    broker = {
        "NAME": "orbitmq-broker",
        "SERVER": "broker",
        "ARGUMENTS": _arguments(
            "broker",
            # The service resolves to the addresses of all name servers that are ready.
            "--name-servers=dns://orbitmq-nameserver:9876",
            "--set=brokerName=$(POD_NAME)",
            "--set=brokerIP1=$(POD_IP)",
            f"--set=storePathRootDir={DATA}",
            *_METRICS,
        ),
        "PORTS": "{name: remoting, containerPort: 10911}, {name: grpc, containerPort: 8081}, "
        "{name: metrics, containerPort: 5557}",
        "CPU": '"1"',
        "MEMORY": "1Gi",
        "STORAGE": "20Gi",
    }
    sets = [_filled(STATEFUL_SET, {**values, "IMAGE": json.dumps(image)}) for values in (name_server, broker)]
    return KUBERNETES + "".join(sets)


def _filled(text: str, values: dict[str, str]) -> str:
    """The text with each capitalized word of ``values`` replaced by its value."""
    words = "|".join(values)
    return re.sub(rf"\b(?:{words})\b", lambda found: values[found[0]], text)


def _ports(*ports: int) -> str:
    return f"    ports: [{', '.join(json.dumps(f'{port}:{port}') for port in ports)}]"


def _arguments(*words: str) -> str:
    return "\n".join(f"            - {word}" for word in words)
