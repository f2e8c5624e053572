"""The reason of a failed connect, in the system's own words and without the address."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

# Finds the number of each error in asyncio's text about a host with several addresses.
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


def why_not(error: OSError) -> str:
    """The reason of a failed connect. asyncio's texts contain the address, which OrbitMQ's errors name
    already."""
    numbers = [error.errno] if error.errno else [int(one) for one in _NUMBER.findall(str(error))]
    if isinstance(error, socket.gaierror) or not numbers:
        return error.strerror or str(error)
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers))
