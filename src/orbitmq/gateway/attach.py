"""Adds the gRPC door to a broker. Imports no gRPC library: a broker loads it for its first gRPC client."""

from __future__ import annotations

from orbitmq.broker.extension import Attachment, Host
from orbitmq.gateway.call import Service
from orbitmq.gateway.door import GrpcDoor, MakeService
from orbitmq.wire.connection import HTTP2, TLS


def _of_rocketmq(host: Host) -> Service:
    from orbitmq.gateway.service import service

    return service(host)


def attach(host: Host, make_service: MakeService = _of_rocketmq) -> Attachment:
    """The extension of a broker that serves the clients of RocketMQ 5."""
    door = GrpcDoor(host, make_service)
    return Attachment([door], figures=door.figures, takers={HTTP2: door.take_plain, TLS: door.take_tls})
