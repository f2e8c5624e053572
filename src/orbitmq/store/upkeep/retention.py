"""Decides which log files to delete, and whether the disk still takes messages. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.store.config import StoreConfig

# Deleting many big files in one go keeps the disk busy; the rest waits for the next pass.
MAX_FILES_PER_PASS = 10


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How many of the oldest files to delete now, and whether writes must be refused."""

    delete: int
    refuse_writes: bool


def decide(
    config: StoreConfig, now_ms: int, due: bool, disk_used: float, finished_at_ms: list[int], held_from: int
) -> Cleaning:
    """Plan one pass.

    Args:
        due: whether it is an hour in which expired files are deleted.
        disk_used: used share of the disk.
        finished_at_ms: for each full file, oldest first, when its last message was stored. The file that is
            being written is not among them and never deleted.
        held_from: the number of the first file that is kept, however old it is, while there is room.
    """
    expired = 0
    for finished in finished_at_ms[:held_from]:
        if finished + config.file_reserved_ms > now_ms:
            break
        expired += 1
    delete = 0
    if due or disk_used > config.disk_max_used_ratio:
        delete = expired
    if disk_used > config.disk_force_clean_ratio:
        delete = len(finished_at_ms)
    return Cleaning(min(delete, MAX_FILES_PER_PASS), disk_used > config.disk_full_ratio)
