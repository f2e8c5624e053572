"""Memory for the page cache, asked for before a run and not within it.

The host of a virtual machine may hand over memory when it is touched first, and take it back when it is free.
Here that made a page cost 11 us and not 1.5 us, more than all that a broker does for a message of 1 KiB.
"""

from __future__ import annotations

import time
from pathlib import Path

TOUCH_MIB = 768
"""More than a broker writes in a run of a second."""


class PageCache:
    """Touches memory by writing a file and removing it before it goes to the disk.

    Args:
        mib: what is written each time unless another size is asked for.

    Attributes:
        rates: what each writing achieved, MiB per second.
    """

    def __init__(self, folder: Path, mib: int = TOUCH_MIB) -> None:
        self._mib = mib
        self._file = folder / "page-cache"
        self.rates: list[float] = []

    def touch(self, mib: int | None = None) -> None:
        """Write so many MiB and remove them."""
        mib = mib or self._mib
        block = bytes(1 << 20)
        begin = time.monotonic()
        with self._file.open("wb", buffering=0) as file:
            for _ in range(mib):
                file.write(block)
        self.rates.append(mib / (time.monotonic() - begin))
        self._file.unlink()
