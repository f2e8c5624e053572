"""Protobuf's classes for :mod:`orbitmq.gateway.schema`, in a separate descriptor pool.

The official Python client defines the same package in protobuf's default pool, where a second definition
fails, and a broker may run in that client's process. Imported, like protobuf, for the first gRPC client.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from orbitmq.gateway import schema
from orbitmq.gateway.call import CallError, GrpcStatus

PACKAGE: Final = "apache.rocketmq.v2"
_NANOS_A_MS = 1_000_000
_SCALARS: Mapping[object, FieldDescriptorProto.Type.ValueType] = {
    str: FieldDescriptorProto.TYPE_STRING,
    bytes: FieldDescriptorProto.TYPE_BYTES,
    bool: FieldDescriptorProto.TYPE_BOOL,
    int: FieldDescriptorProto.TYPE_INT32,
    float: FieldDescriptorProto.TYPE_FLOAT,
}

T = TypeVar("T", bound=schema.Form)


def _forms() -> list[type[Any]]:
    return [form for form in vars(schema).values() if isinstance(form, type) and _is_form(form)]


def _is_form(kind: object) -> bool:
    return isinstance(kind, type) and kind is not schema.Form and issubclass(kind, schema.Form)


def _described(form: type[Any]) -> DescriptorProto:
    """The descriptor of one message of the schema."""
    described = DescriptorProto(name=form.__name__)
    for name, hint in get_type_hints(form, include_extras=True).items():
        assert get_origin(hint) is Annotated, f"{form.__name__}.{name} has no number"
        kind, number, *more = get_args(hint)
        field = described.field.add(name=name, number=number)
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if get_origin(kind) is Sequence:
            field.label = FieldDescriptorProto.LABEL_REPEATED
            (kind,) = get_args(kind)
        if get_origin(kind) is MutableMapping:
            _describe_map(described, field)
        elif _is_form(kind):
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{kind.__name__}"
        else:
            field.type = FieldDescriptorProto.TYPE_INT64 if schema.INT64 in more else _SCALARS[kind]
        for group in (each.name for each in more if isinstance(each, schema.OneOf)):
            known = [oneof.name for oneof in described.oneof_decl]
            if group not in known:
                described.oneof_decl.add(name=group)
            field.oneof_index = len(known) if group not in known else known.index(group)
        field.proto3_optional = schema.OPTIONAL in more
    # In a descriptor, an optional field is the only member of a oneof, which comes after all real oneofs.
    for field in described.field:
        if field.proto3_optional:
            field.oneof_index = len(described.oneof_decl)
            described.oneof_decl.add(name=f"_{field.name}")
    return described


def _describe_map(described: DescriptorProto, field: FieldDescriptorProto) -> None:
    """Describe a map of strings as protobuf does: a repeated message with a key and a value."""
    name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
    entry = described.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), start=1):
        entry.field.add(
            name=part,
            number=number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=FieldDescriptorProto.TYPE_STRING,
        )
    field.label = FieldDescriptorProto.LABEL_REPEATED
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{described.name}.{name}"


def _made() -> dict[type[Any], type[Any]]:
    """Protobuf's class for each message of the schema."""
    file = FileDescriptorProto(name="orbitmq.gateway", package=PACKAGE, syntax="proto3")
    forms = _forms()
    file.message_type.extend(map(_described, forms))
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {form: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{form.__name__}")) for form in forms}


_CLASSES: Final = _made()


def new(form: type[T], **fields: object) -> T:
    """A new message with these fields.

    Raises:
        TypeError, ValueError: a field is unknown, or has the wrong type.
    """
    return cast(T, _CLASSES[form](**fields))


def parse(form: type[T], data: bytes) -> T:
    """The message decoded from bytes.

    Raises:
        CallError: INVALID_ARGUMENT, the data is cut, wrongly typed, nested too deep, or a text is not UTF-8.
    """
    try:
        return cast(T, _CLASSES[form].FromString(data))
    except DecodeError as error:
        text = f"{len(data)} bytes are no {form.__name__}: cut, of wrong types, or nested too deep"
        raise CallError(GrpcStatus.INVALID_ARGUMENT, text) from error


def timestamp(ms: int) -> schema.Timestamp:
    """The Timestamp of an instant, given in milliseconds since the epoch."""
    return new(schema.Timestamp, seconds=ms // 1000, nanos=ms % 1000 * _NANOS_A_MS)


def duration(ms: int) -> schema.Duration:
    """The Duration of a span of time, given in milliseconds, not below 0."""
    return new(schema.Duration, seconds=ms // 1000, nanos=ms % 1000 * _NANOS_A_MS)


def milliseconds(time: schema.Timestamp | schema.Duration) -> int:
    """The milliseconds of a Timestamp, since the epoch, or of a Duration, rounded down."""
    return time.seconds * 1000 + time.nanos // _NANOS_A_MS
