"""Refuses folders of a RocketMQ broker in a form that OrbitMQ cannot read.

Without this check, topics, offsets or messages would be missing, or records misread. The error names the
remedy.
"""

from __future__ import annotations

from orbitmq.runtime.seam import Files
from orbitmq.store.errors import StoreError

# Each folder with mqadmin's name for it and the JSON file that OrbitMQ reads instead.
_TABLES = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
_ALL_TABLES = ("metadata", "rdb")
_AS_SLAVE = (
    "or let this broker join in an empty folder as a slave of that broker while it runs (brokerRole=SLAVE), "
    "which copies messages and tables"
)
_EXPORT = "mqadmin rocksDBConfigToJson"


def refuse_foreign(files: Files, root: str) -> None:
    """Refuse a store's folder ``root`` with such files.

    Raises:
        StoreError: ``root`` has such files; the text names each folder found, and what to do.
    """
    found = [*_tables(files, root), *_queues(files, root), *_others(files, root)]
    if found:
        raise StoreError("; ".join(found))


def _tables(files: Files, root: str) -> list[str]:
    found = []
    for name, file in _TABLES.items():
        folder = f"{root}/config/{name}"
        if files.is_dir(folder):
            found.append(
                f"{folder} is a table in RocksDB, which is not read here: write it as {root}/config/{file} "
                f"with '{_EXPORT} -p {root}/config -t {name} -e {root}/config/{file}' and move it away, "
                f"{_AS_SLAVE}"
            )
    for name in _ALL_TABLES:
        folder = f"{root}/config/{name}"
        if files.is_dir(folder):
            found.append(
                f"{folder} has the tables in RocksDB, which is not read here: let RocketMQ write them as "
                f"JSON with '{_EXPORT} -b ADDRESS' while it runs, then stop it and move it away, "
                f"{_AS_SLAVE}"
            )
    return found


def _queues(files: Files, root: str) -> list[str]:
    found = []
    names = files.list_dir(f"{root}/consumequeue")
    if any(name == "CURRENT" or name.startswith("MANIFEST-") or name.endswith(".sst") for name in names):
        found.append(
            f"{root}/consumequeue has the consume queues in RocksDB, which is not read here: move the folder "
            "away, a start makes them anew from the log"
        )
    if files.list_dir(f"{root}/batchconsumequeue"):
        found.append(
            f"{root}/batchconsumequeue has queues of topics with queue.type=BatchCQ, whose records are not "
            "understood here: let their consumers finish at RocketMQ, make the topics again with "
            "queue.type=SimpleCQ and begin with an empty folder"
        )
    return found


def _others(files: Files, root: str) -> list[str]:
    found = [
        f"{root}/{name} is a log of DLedger, which is not read here: let consumers finish at RocketMQ and "
        "begin with an empty folder, with a brokerId and a brokerRole for each broker"
        for name in files.list_dir(root)
        if name.startswith("dledger-") and files.is_dir(f"{root}/{name}")
    ]
    if files.is_dir(f"{root}/kvStore"):
        found.append(
            f"{root}/kvStore has popped messages without acknowledgement in RocksDB, which is not read "
            "here: let the consumers that pop finish at RocketMQ, stop it and move the folder away"
        )
    return found
