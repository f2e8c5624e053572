"""Makes the Telemetry command by which a gRPC producer checks an open transaction. Pure."""

from __future__ import annotations

from orbitmq.gateway import delivered, schema
from orbitmq.gateway.messages import new
from orbitmq.gateway.transaction_id import TransactionId
from orbitmq.message import property_names
from orbitmq.message.errors import CompressionError
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import decode_record
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import CheckTransactionStateRequest


def question(command: Command, broker: str) -> schema.TelemetryCommand | None:
    """The gRPC form of a CHECK_TRANSACTION_STATE command; None for any other command.

    Args:
        broker: the name of this broker.
    """
    if command.code != RequestCode.CHECK_TRANSACTION_STATE:
        return None
    header = CheckTransactionStateRequest.from_ext(command.ext)
    record = decode_record(command.body)
    properties = decode_properties(record.properties)
    try:
        body = delivered.body_of(record)
    except CompressionError:
        # The packed body has to do: the producer finds its message by the id, too.
        body = record.body
    message = delivered.message_of(
        record, properties, body, new(schema.Resource, name=record.topic), handle="", attempt=1
    )
    transaction = TransactionId(
        broker,
        properties.get(property_names.PRODUCER_GROUP, ""),
        header.tran_state_table_offset,
        header.commit_log_offset,
    )
    asked = new(
        schema.RecoverOrphanedTransactionCommand, message=message, transaction_id=transaction.encode()
    )
    return new(schema.TelemetryCommand, recover_orphaned_transaction_command=asked)
