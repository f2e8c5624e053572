"""Why the machine made no connection, in the system's own words and without the address."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

# In the text of asyncio about a host with several addresses: the number of each error.
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


def why_not(error: OSError) -> str:
    """The reason of a failed connect. The texts of asyncio name the address, as errors do."""
    numbers = [error.errno] if error.errno else [int(one) for one in _NUMBER.findall(str(error))]
    if isinstance(error, socket.gaierror) or not numbers:
        return error.strerror or str(error)
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers))
