"""The settings of a store under OrbitMQ's names; the broker translates RocketMQ's settings into them."""

from __future__ import annotations

from dataclasses import dataclass

CONSUME_QUEUE_ENTRY_BYTES = 20


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where and how messages are kept.

    Attributes:
        root: the store's folder (``storePathRootDir``).
        commit_log: folder of the log, ``None``: ``<root>/commitlog``.
        commit_log_file_bytes: size of one log file.
        consume_queue_file_bytes: size of one consume queue file, a multiple of 20.
        sync_flush: a message is acknowledged when it is on the device (SYNC_FLUSH); otherwise it is flushed
            within ``flush_interval_ms``.
        store_host: this broker's address and port, part of every record.
        batch_bytes: buffer for the messages that arrive between two writes; at least one maximal record.
        largest_bytes: the buffer grows for a single message of up to this size, so that a message stored
            under a higher limit can be stored again under a lower one.
        tail_entries: index entries of each queue kept in memory.
        file_reserved_ms: age after which a full log file may be deleted.
        delete_hours: local hours of the day in which expired files are deleted (``deleteWhen``).
        disk_max_used_ratio: from this used share on, expired files are deleted at any hour.
        disk_force_clean_ratio: from this used share on, the oldest files are deleted even when not expired.
        disk_full_ratio: from this used share on, no message is taken.
        index: find messages by their keys (``messageIndexEnable``).
        index_slots: hash slots of an index file (``maxHashSlotNum``).
        index_entries: entries of an index file (``maxIndexNum``).
    """

    root: str
    commit_log: str | None = None
    commit_log_file_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 300_000 * CONSUME_QUEUE_ENTRY_BYTES
    sync_flush: bool = True
    flush_interval_ms: int = 500
    checkpoint_interval_ms: int = 5000
    store_host: tuple[str, int] = ("127.0.0.1", 10911)
    batch_bytes: int = (4 << 20) + (128 << 10)
    largest_bytes: int = 0
    tail_entries: int = 512
    file_reserved_ms: int = 72 * 3600 * 1000
    delete_hours: frozenset[int] = frozenset((4,))
    clean_interval_ms: int = 10_000
    disk_max_used_ratio: float = 0.75
    disk_force_clean_ratio: float = 0.85
    disk_full_ratio: float = 0.90
    index: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000

    @property
    def commit_log_path(self) -> str:
        return self.commit_log or f"{self.root}/commitlog"

    @property
    def consume_queue_path(self) -> str:
        return f"{self.root}/consumequeue"

    @property
    def index_path(self) -> str:
        return f"{self.root}/index"
