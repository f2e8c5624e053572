"""The stacks of the threads and the tasks of this process."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from types import FrameType

# The most threads and the most tasks that are shown, and the most calls of each.
MOST = 100
DEEPEST = 20


def stacks() -> str:
    """A paragraph for each thread, and for each task of the running event loop; the last call comes last."""
    names = {one.ident: one.name for one in threading.enumerate()}
    parts = [
        _paragraph(f"thread {names.get(number, number)}", traceback.format_stack(frame, DEEPEST))
        for number, frame in list(sys._current_frames().items())[:MOST]
    ]
    for task in list(asyncio.all_tasks())[:MOST]:
        frames: list[FrameType] = task.get_stack(limit=DEEPEST)
        lines = [line for frame in frames for line in traceback.format_stack(frame, 1)]
        parts.append(_paragraph(f"task {task.get_name()}", lines))
    return "\n".join(parts)


def _paragraph(title: str, lines: list[str]) -> str:
    return f"{title}\n{''.join(lines)}"
