"""Returning memory to the operating system."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from orbitmq.runtime import system_runtime


def anonymous_kib() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.behaviour("LM-11")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_memory_below_what_is_in_use_is_given_back() -> None:
    # Each piece is larger than Python's own allocator handles, and smaller than the C library maps.
    pieces = [bytearray(2_000) for _ in range(32_768)]
    kept = pieces[-1:]
    full = anonymous_kib()
    del pieces
    system_runtime().host.give_back_memory()
    assert full - anonymous_kib() > 32 * 1024
    assert len(kept[0]) == 2_000
