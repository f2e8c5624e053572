"""The file of a broadcast member's progress has one owner on a machine, across processes, too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.client.consumer.offsets import LocalOffsets
from orbitmq.errors import ClientStateError
from orbitmq.runtime.system import system_runtime

OTHER_MEMBER = """
import asyncio, sys
from orbitmq.client.consumer.offsets import LocalOffsets
from orbitmq.runtime.system import system_runtime

offsets = LocalOffsets(system_runtime(), sys.argv[1])
asyncio.run(offsets.load())
print("loaded", flush=True)
sys.stdin.read()
"""


@pytest.mark.behaviour("CR-26")
def test_a_file_of_another_process_is_refused_until_that_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "cg" / "offsets.json")
    command = [sys.executable, "-c", OTHER_MEMBER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "loaded\n"
            offsets = LocalOffsets(system_runtime(), path)
            with pytest.raises(ClientStateError, match="give each member an offsets_folder of its own"):
                asyncio.run(offsets.load())
        finally:
            other.kill()
            other.wait()
    asyncio.run(offsets.load())
    asyncio.run(offsets.close())
