"""Where the fields of a stored record stand, for its writers and readers, compiled or not.

A record (MessageDecoder, CommitLog): total size (4), magic (4), CRC of the body (4), queue id (4), flag (4),
queue offset (8), physical offset (8), system flag (4), born time (8), born host, store time (8), store host,
reconsume times (4), prepared transaction offset (8), body length (4), body, topic length (1, version 2: 2),
topic, properties length (2), properties. A host is 8 bytes long, 20 for IPv6. All numbers are big-endian and
signed.
"""

from __future__ import annotations

from typing import Final

MAGIC_V1: Final = -626843481  # 0xDAA320A7
MAGIC_V2: Final = -626843477  # 0xDAA320AB, a topic of more than 127 bytes
MAGIC_BLANK: Final = -875286124  # 0xCBD43194, the rest of the file is unused

SIZE_AT: Final = 0
MAGIC_AT: Final = 4
CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIME_AT: Final = 40
BORN_HOST_AT: Final = 48

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20
# The bits of the system flag that show which of these two lengths a host has.
BORN_HOST_V6_BIT: Final = 0x10
STORE_HOST_V6_BIT: Final = 0x20
# Between store host and body: reconsume times, prepared transaction offset, body length.
BODY_LENGTH_AFTER_STORE_HOST: Final = 12

# All fixed fields but the two hosts, with the lengths of body, topic (version 1) and properties.
FIXED_BYTES: Final = 75
# Two IPv4 hosts, no body, no topic.
MIN_RECORD_BYTES: Final = FIXED_BYTES + 2 * HOST_V4_BYTES
# Size and magic: all that a blank record has.
BLANK_BYTES: Final = 8
