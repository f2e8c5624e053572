"""The status codes of ``apache.rocketmq.v2``, and which of them each response code of the broker becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from orbitmq.broker.messaging.too_large import BodyTooLargeError, PropertiesTooLongError
from orbitmq.errors import OrbitError
from orbitmq.gateway.call import GrpcStatus
from orbitmq.store import StoreClosedError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError, WireError


class Code(IntEnum):
    """The code of a response's status. Its first three digits are an HTTP status."""

    UNSPECIFIED = 0
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    INVALID_CLIENT_PROPERTIES = 40021
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500
    VERSION_UNSUPPORTED = 50501
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000


# Status codes by the broker's response codes. All others become INTERNAL_SERVER_ERROR.
OF_REMOTING: Final[Mapping[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_ERROR: Code.INTERNAL_SERVER_ERROR,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    # A body or properties that are too large have separate status codes: see refusal().
    ResponseCode.MESSAGE_ILLEGAL: Code.MESSAGE_CORRUPTED,
    ResponseCode.SERVICE_NOT_AVAILABLE: Code.INTERNAL_SERVER_ERROR,
    ResponseCode.VERSION_NOT_SUPPORTED: Code.VERSION_UNSUPPORTED,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_TIMEOUT: Code.MESSAGE_NOT_FOUND,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
}

# The gRPC status with which a stream ends, by the first three digits of the code.
_OF_CODE: Final[Mapping[int, GrpcStatus]] = {
    200: GrpcStatus.OK,
    300: GrpcStatus.OK,
    401: GrpcStatus.UNAUTHENTICATED,
    403: GrpcStatus.PERMISSION_DENIED,
    404: GrpcStatus.NOT_FOUND,
    408: GrpcStatus.DEADLINE_EXCEEDED,
    428: GrpcStatus.FAILED_PRECONDITION,
    429: GrpcStatus.RESOURCE_EXHAUSTED,
    501: GrpcStatus.UNIMPLEMENTED,
    504: GrpcStatus.DEADLINE_EXCEEDED,
    505: GrpcStatus.UNIMPLEMENTED,
}


class RefusalError(OrbitError):
    """A call's refusal, which becomes the status of its answer.

    Attributes:
        code: a :class:`Code`.
        message: the sentence for the user, with field, value and limit.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name} ({code.value}): {message}")
        self.code = code
        self.message = message


def of_remoting(code: int) -> Code:
    """The status code for a response code of the broker."""
    return OF_REMOTING.get(code, Code.INTERNAL_SERVER_ERROR)


def of_grpc(code: Code) -> GrpcStatus:
    """The gRPC status with which a stream ends for this code."""
    internal = GrpcStatus.INTERNAL if code >= Code.INTERNAL_ERROR else GrpcStatus.INVALID_ARGUMENT
    return _OF_CODE.get(code // 100, internal)


# The errors by which the broker's ports refuse a call.
PORT_ERRORS: Final = (RemotingError, WireError, StoreClosedError)


def refusal(error: RemotingError | WireError | StoreClosedError) -> RefusalError:
    """The answer to a call that one of the broker's ports refuses."""
    if isinstance(error, BodyTooLargeError):
        return RefusalError(Code.MESSAGE_BODY_TOO_LARGE, error.remark)
    if isinstance(error, PropertiesTooLongError):
        return RefusalError(Code.MESSAGE_PROPERTIES_TOO_LARGE, error.remark)
    if isinstance(error, RemotingError):
        return RefusalError(of_remoting(error.code), error.remark)
    if isinstance(error, WireError):
        return RefusalError(Code.BAD_REQUEST, str(error))
    return RefusalError(Code.INTERNAL_SERVER_ERROR, str(error))


def of_many(codes: Iterable[int]) -> Code:
    """The code of an answer with several results: their code if all are equal, else MULTIPLE_RESULTS."""
    found = set(codes)
    return Code(found.pop()) if len(found) == 1 else Code.MULTIPLE_RESULTS
