"""Turns operators' requests to gRPC clients into Telemetry commands, and reads the clients' answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.gateway import abilities, delivered, schema
from orbitmq.gateway.messages import new
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import decode_record
from orbitmq.wire.bodies.client import CMResult, ConsumeMessageDirectlyResult
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, Language

# The most characters of a thread dump, which has to fit in a frame of the remoting protocol; the rest is cut.
MAX_DUMP: Final = 1_000_000
_RESULTS: Final[Mapping[int, CMResult]] = {
    Code.OK: CMResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
}
_UNABLE: Final = {Code.NOT_IMPLEMENTED, Code.UNSUPPORTED, Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED}


def refusal(code: int, language: Language, kind: int) -> str:
    """Why a client cannot answer a request; empty if it can."""
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        if abilities.verifies(language, kind):
            return ""
        able = _names(abilities.VERIFYING)
        client = f"a {language.name} {_kind(kind)}"
        return f"{client} does not consume messages on request; push consumers in {able} do"
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        if abilities.dumps(language):
            return ""
        return (
            f"a {language.name} client tells nothing about itself; clients in {_names(abilities.DUMPING)} do"
        )
    return f"request {code} cannot be put to gRPC clients"


def question(command: Command, nonce: str) -> schema.TelemetryCommand:
    """The Telemetry command for a request that :func:`refusal` allows.

    Args:
        nonce: identifies the question in the client's answer.

    Raises:
        MessageFormatError: the message cannot be read.
        CompressionError: its body cannot be unpacked.
    """
    if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        return new(
            schema.TelemetryCommand,
            print_thread_stack_trace_command=new(schema.PrintThreadStackTraceCommand, nonce=nonce),
        )
    record = decode_record(command.body)
    message = delivered.message_of(
        record,
        decode_properties(record.properties),
        delivered.body_of(record),
        new(schema.Resource, name=record.topic),
        handle="",
        attempt=record.reconsume_times + 1,
    )
    return new(
        schema.TelemetryCommand,
        verify_message_command=new(schema.VerifyMessageCommand, nonce=nonce, message=message),
    )


def nonce_of(answer: schema.TelemetryCommand) -> str:
    """The nonce of the question that a client answers; empty without one."""
    if answer.HasField("verify_message_result"):
        return answer.verify_message_result.nonce
    if answer.HasField("thread_stack_trace"):
        return answer.thread_stack_trace.nonce
    # Node's client sends the command back when it cannot carry it out.
    return answer.verify_message_command.nonce


def unable(answer: schema.TelemetryCommand) -> str:
    """Why the client did not carry out a command; empty if it did."""
    code = answer.status.code
    if code not in _UNABLE:
        return ""
    return f"it answers {Code(code).name} {answer.status.message}".rstrip()


def consumed(answer: schema.TelemetryCommand, took_ms: int) -> bytes:
    """The body that operators get for a message consumed on request: ConsumeMessageDirectlyResult."""
    code = answer.status.code
    result = _RESULTS.get(code, CMResult.CR_THROW_EXCEPTION)
    remark = answer.status.message or (None if code in _RESULTS else f"status code {code}")
    return ConsumeMessageDirectlyResult(
        consume_result=result, remark=remark, spent_time_mills=took_ms
    ).encode()


def dump(answer: schema.TelemetryCommand) -> str:
    """The thread dump in a client's answer, cut to :data:`MAX_DUMP`."""
    return answer.thread_stack_trace.thread_stack_trace[:MAX_DUMP]


def _names(languages: frozenset[Language]) -> str:
    return ", ".join(sorted(language.name for language in languages))


def _kind(kind: int) -> str:
    return "simple consumer" if kind == ClientType.SIMPLE_CONSUMER else "client"
