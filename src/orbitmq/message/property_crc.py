"""The optional checksum over a whole record, kept in its last property.

The last 20 bytes of the record are then ``__CRC32#``, 0x01, ten digits and 0x02. The digits are the CRC-32 of
all bytes before, least significant digit first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orbitmq.message import property_names
from orbitmq.message.errors import RecordError
from orbitmq.message.record import Record, body_crc, encode_record
from orbitmq.runtime.seam import Buffer

CRC_PROPERTY_BYTES: Final = 20
_PREFIX: Final = f"{property_names.CRC32}\x01".encode()


def crc_property(checksum: int) -> bytes:
    """The 20 bytes that hold ``checksum``."""
    return _PREFIX + f"{checksum:010d}"[::-1].encode() + b"\x02"


def encode_record_with_crc(record: Record) -> bytes:
    """As :func:`encode_record`, with the checksum as the last property.

    Raises:
        RecordError: the record does not fit its fields.
    """
    block = record.properties
    separator = b"\x02" if block and not block.endswith(b"\x02") else b""
    raw = encode_record(replace(record, properties=block + separator + bytes(CRC_PROPERTY_BYTES)))
    covered = raw[:-CRC_PROPERTY_BYTES]
    return covered + crc_property(body_crc(covered))


def check_property_crc(raw: Buffer) -> bool:
    """Whether one whole record carries the checksum; it is compared when it does.

    Raises:
        RecordError: it differs from the record's bytes.
    """
    tail = bytes(raw[-CRC_PROPERTY_BYTES:])
    if not tail.startswith(_PREFIX):
        return False
    expected = crc_property(body_crc(bytes(raw[:-CRC_PROPERTY_BYTES])))
    if tail != expected:
        raise RecordError(
            f"record of {len(raw)} bytes has checksum {tail[9:-1]!r}, its bytes give {expected[9:-1]!r}"
        )
    return True
