"""``orbitmq audit show``: two lines of a change as one entry, filters, renamed files, damaged lines."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from orbitmq.cli import audit
from orbitmq.cli.audit_entries import MOST_OPEN, Joined, Wanted, in_words
from orbitmq.cli.main import main

pytestmark = pytest.mark.behaviour("CS-38")


def at(second: int) -> str:
    return f"2026-11-29T20:00:{second:02d}.000Z"


def change(number: int, second: int, verdict: str, **more: Any) -> dict[str, Any]:
    what = {"event": "change", "id": number, "user": "ops", "from": "10.0.0.9:5", "code": 17}
    return {
        "time": at(second), **what, "request": "UPDATE_AND_CREATE_TOPIC", "target": ["Topic:orders"],
        **more, "verdict": verdict,
    }  # fmt: skip


def refusal(second: int, claimed: str = "eve", count: int = 1) -> dict[str, Any]:
    return {
        "time": at(second), "event": "refusal", "claimed": claimed, "from": "10.0.0.7", "code": 215,
        "request": "DELETE_TOPIC_IN_BROKER", "why": "check signature failed.", "count": count,
        "verdict": "refused",
    }  # fmt: skip


START = {"time": at(0), "event": "start", "pid": 7}
BEFORE = {"Topic:orders": {"readQueueNums": 4, "perm": 6}}
AFTER = {"Topic:orders": {"readQueueNums": 8, "perm": 6}}
LINES = [
    START,
    change(1, 1, "permitted", before=BEFORE),
    refusal(2),
    change(1, 3, "made", after=AFTER),
    change(2, 4, "permitted", before=AFTER),
    change(2, 5, "failed", answer=1, why="no such topic"),
    change(3, 6, "permitted", before=AFTER),
]
SHOWN = [
    f"{at(0)}  started  pid 7",
    f"{at(2)}  refused  eve at 10.0.0.7  DELETE_TOPIC_IN_BROKER  1 time: check signature failed.",
    f"{at(1)}  made  ops at 10.0.0.9:5  UPDATE_AND_CREATE_TOPIC  Topic:orders readQueueNums 4 -> 8",
    f"{at(4)}  failed  ops at 10.0.0.9:5  UPDATE_AND_CREATE_TOPIC  Topic:orders: no such topic",
    f"{at(6)}  outcome unknown  ops at 10.0.0.9:5  UPDATE_AND_CREATE_TOPIC  Topic:orders",
]


def written(path: Path, lines: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    assert main(["audit", "show", *arguments]) == code
    return capsys.readouterr().out.splitlines()


def test_a_change_is_one_entry_with_its_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "audit.log", LINES)
    assert shown(capsys, file) == SHOWN
    made = json.loads(shown(capsys, file, "--json")[2])
    assert (made["before"], made["after"], made["verdict"]) == (BEFORE, AFTER, "made")
    assert (made["time"], made["ended"]) == (at(1), at(3))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--refused"], [1]),
        (["--failed"], [3, 4]),
        (["--user", "ops"], [2, 3, 4]),
        (["--user", "eve"], [1]),
        (["--target", "orders", "--since", at(4)], [3, 4]),
        (["--target", "Topic:orders", "--until", at(4)], [2]),
        (["--target", "rders"], []),
    ],
)
def test_what_is_shown_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], wanted: list[int]
) -> None:
    file = written(tmp_path / "audit.log", LINES)
    assert shown(capsys, file, *options) == [SHOWN[number] for number in wanted]


def test_renamed_files_come_first_and_a_change_may_be_in_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lines in (("audit.log.2", LINES[:2]), ("audit.log.1", LINES[2:3]), ("audit.log", LINES[3:])):
        written(tmp_path / name, lines)
    written(tmp_path / "audit.log.4", [START])  # a file of another time, since .3 is missing
    assert shown(capsys, str(tmp_path / "audit.log")) == SHOWN


def test_a_start_ends_the_changes_before_it() -> None:
    joined = Joined()
    entries = [
        entry for line in (LINES[6], START, change(3, 9, "made", after={})) for entry in joined.add(line)
    ]
    assert [entry["verdict"] for entry in entries if entry["event"] == "change"] == ["permitted", "made"]
    assert "before" not in entries[2]


def test_changes_that_never_end_do_not_pile_up() -> None:
    joined = Joined()
    entries = [
        entry for number in range(MOST_OPEN + 5) for entry in joined.add(change(number, 1, "permitted"))
    ]
    assert [entry["id"] for entry in entries] == [0, 1, 2, 3, 4]


def test_a_damaged_line_is_named_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "audit.log"
    good = json.dumps(START).encode()
    bad = [b"{", b"[]", b'{"event": "start", "time": "then"}', b'{"event": "start"}', b"\xff"]
    bad.append(b'{"event": "start", "time": "2026-11-29T20:00:00"}')
    file.write_bytes(b"\n".join([good, *bad, good]))
    assert main(["audit", "show", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [SHOWN[0]] * 2
    assert [line.partition(" is left out: ")[2] for line in err.splitlines()] == [
        "no JSON",
        'no JSON object with "event"',
        '"time" is no time',
        '"time" is no time',
        "no text in UTF-8",
        '"time" has no zone',
    ]
    assert f"{file}:2 is left out" in err


def test_a_name_with_control_characters_moves_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = shown(capsys, written(tmp_path / "audit.log", [refusal(1, "\x1b[2Jeve\n")]))
    assert "\\x1b[2Jeve\\n at 10.0.0.7" in line


def test_what_was_made_deleted_or_left(tmp_path: Path) -> None:
    def words(**more: Any) -> str:
        return in_words(change(1, 1, "made", **more)).rpartition("  ")[2]

    assert words(before={"Topic:a": None}, after={"Topic:a": {"perm": 6}}) == "Topic:a made"
    assert words(before={"Topic:a": {"perm": 6}}, after={"Topic:a": None}) == "Topic:a deleted"
    assert words(before=BEFORE, after=BEFORE) == "Topic:orders as before"
    assert words(before={"flush": "1"}, after={"flush": "2"}) == "flush 1 -> 2"
    assert words(fields={"namespace": "x", "key": "y"}) == "Topic:orders (namespace=x, key=y)"
    many = {f"key{number}": "1" for number in range(10)}
    assert words(before={}, after=many).endswith("key7 made: 1; 2 more")
    assert in_words({"time": at(1), "event": "other refusals", "count": 5, "verdict": "refused"}) == (
        f'{at(1)}  refused  other refusals  {{"count": 5}}'
    )


def test_standard_input_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Input:
        buffer = io.BytesIO(json.dumps(START).encode() + b"\n")

    monkeypatch.setattr("sys.stdin", Input())
    assert shown(capsys, "-") == SHOWN[:1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["nowhere.log"], "nowhere.log: No such file or directory"),
        (["-", "--follow"], "--follow: standard input is read to its end anyway"),
        (["-", "--refused", "--failed"], "--refused and --failed exclude each other"),
        (["-", "--since", "soon"], "--since soon: expected a time"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    assert main(["audit", "show", *options]) in (1, 2)
    assert says in capsys.readouterr().err


def test_a_file_is_followed_behind_its_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LOOK_S", 0.01)
    asyncio.run(followed(tmp_path))


async def followed(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    written(file, LINES[:2])

    async with asyncio.timeout(20), aclosing(audit._shown(str(file), Wanted(), follow=True)) as lines:

        async def line() -> str | bytes | None:
            return (await anext(lines)).text

        assert await line() == SHOWN[0]
        with file.open("a") as end:
            text = json.dumps(LINES[2]) + "\n"
            end.write(text[:20])
            end.flush()
            waiting = asyncio.ensure_future(line())
            await asyncio.sleep(0.05)
            assert not waiting.done(), "a line that is not whole yet is waited for"
            end.write(text[20:])
        assert await waiting == SHOWN[1]
        with file.open("a") as end:
            end.write(json.dumps(LINES[3]) + "\n")
        file.rename(tmp_path / "audit.log.1")
        assert await line() == SHOWN[2]
        waiting = asyncio.ensure_future(line())
        await asyncio.sleep(0.05)
        written(file, LINES[4:6])
        assert await waiting == SHOWN[3]
        written(file, LINES[2:3])  # the file is truncated, and shorter than the part already read
        assert await line() == SHOWN[1]
