"""Codes: the gRPC status for each of the broker's response codes."""

from __future__ import annotations

import pytest

from orbitmq.broker.messaging.too_large import BodyTooLargeError, PropertiesTooLongError
from orbitmq.gateway.call import GrpcStatus
from orbitmq.gateway.status import OF_REMOTING, Code, of_grpc, of_many, of_remoting, refusal
from orbitmq.store import StoreClosedError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import HeaderError, RemotingError

ROWS = [
    (ResponseCode.SUCCESS, 20000, GrpcStatus.OK),
    (ResponseCode.SYSTEM_ERROR, 50001, GrpcStatus.INTERNAL),
    (ResponseCode.SYSTEM_BUSY, 42900, GrpcStatus.RESOURCE_EXHAUSTED),
    (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 50100, GrpcStatus.UNIMPLEMENTED),
    (ResponseCode.FLUSH_DISK_TIMEOUT, 50401, GrpcStatus.DEADLINE_EXCEEDED),
    (ResponseCode.SLAVE_NOT_AVAILABLE, 50002, GrpcStatus.INTERNAL),
    (ResponseCode.FLUSH_SLAVE_TIMEOUT, 50402, GrpcStatus.DEADLINE_EXCEEDED),
    (ResponseCode.MESSAGE_ILLEGAL, 40016, GrpcStatus.INVALID_ARGUMENT),
    (ResponseCode.SERVICE_NOT_AVAILABLE, 50001, GrpcStatus.INTERNAL),
    (ResponseCode.VERSION_NOT_SUPPORTED, 50501, GrpcStatus.UNIMPLEMENTED),
    (ResponseCode.NO_PERMISSION, 40300, GrpcStatus.PERMISSION_DENIED),
    (ResponseCode.TOPIC_NOT_EXIST, 40402, GrpcStatus.NOT_FOUND),
    (ResponseCode.SUBSCRIPTION_PARSE_FAILED, 40010, GrpcStatus.INVALID_ARGUMENT),
    (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 40403, GrpcStatus.NOT_FOUND),
    (ResponseCode.INVALID_PARAMETER, 40000, GrpcStatus.INVALID_ARGUMENT),
    (ResponseCode.NO_MESSAGE, 40013, GrpcStatus.INVALID_ARGUMENT),
    (ResponseCode.POLLING_FULL, 42900, GrpcStatus.RESOURCE_EXHAUSTED),
    (ResponseCode.POLLING_TIMEOUT, 40401, GrpcStatus.NOT_FOUND),
    (ResponseCode.FLOW_CONTROL, 42900, GrpcStatus.RESOURCE_EXHAUSTED),
    (ResponseCode.ILLEGAL_OPERATION, 40000, GrpcStatus.INVALID_ARGUMENT),
]


@pytest.mark.behaviour("GW-10")
@pytest.mark.parametrize(("remoting", "code", "grpc"), ROWS)
def test_a_code_of_the_broker_is_one_of_the_clients(
    remoting: ResponseCode, code: int, grpc: GrpcStatus
) -> None:
    found = of_remoting(remoting)
    assert (found, of_grpc(found)) == (code, grpc)
    error = refusal(RemotingError(remoting, "the reason"))
    assert (error.code, error.message) == (code, "the reason")


def test_every_row_is_tested_and_the_rest_is_an_error_of_the_server() -> None:
    assert {row[0] for row in ROWS} == set(OF_REMOTING)
    assert of_remoting(ResponseCode.TRANSACTION_FAILED) is Code.INTERNAL_SERVER_ERROR
    assert of_remoting(-77) is Code.INTERNAL_SERVER_ERROR


def test_what_ports_raise_besides_has_a_code() -> None:
    assert refusal(HeaderError("queueId is no number")).code is Code.BAD_REQUEST
    assert refusal(StoreClosedError("the disk is full")).code is Code.INTERNAL_SERVER_ERROR


@pytest.mark.behaviour("GW-10")
def test_what_is_too_large_has_a_code_by_its_cause() -> None:
    body = refusal(BodyTooLargeError("body of 5000000 bytes"))
    assert (body.code, body.message) == (Code.MESSAGE_BODY_TOO_LARGE, "body of 5000000 bytes")
    properties = refusal(PropertiesTooLongError("properties of 40000 bytes"))
    assert (properties.code, properties.message) == (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "properties of 40000 bytes",
    )


def test_several_results_are_one_code_when_they_are_equal() -> None:
    assert of_many([20000, 20000]) is Code.OK
    assert of_many([40013]) is Code.INVALID_RECEIPT_HANDLE
    assert of_many([20000, 40013]) is Code.MULTIPLE_RESULTS
