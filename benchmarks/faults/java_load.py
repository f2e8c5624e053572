"""The same load with Apache's clients and their default periods, in a separate process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.faults.history import Receipt, Send
from benchmarks.faults.load import Load
from benchmarks.servers import ROOT, child_settings

from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

READY_S = 60.0
STOPPED_S = 30.0
SET_MS = 5000
# The number of fields of a line that begins with S, C or R, see FaultLoad.java.
SENT_FIELDS, CHECKED_FIELDS, RECEIVED_FIELDS = 12, 3, 7


class JavaLoad(Load):
    """The roles of :class:`Load`, implemented in ``benchmarks/java/FaultLoad.java``.

    Args:
        program: the command that runs the compiled program.
    """

    def __init__(self, *args: object, program: Sequence[str], **options: int) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._program = list(program)
        self._process: asyncio.subprocess.Process | None = None
        self._said = {"ready": asyncio.Event(), "stopped": asyncio.Event()}

    async def _start_roles(self) -> None:
        for topic, role in (("pop", "pop"), ("backlog", "backlog-pop")):
            await self._pop_by_broker(topic, f"{role}_group")
        self._process = await asyncio.create_subprocess_exec(
            *self._program,
            "load",
            self._place.name_server,
            str(self._seed),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            preexec_fn=child_settings,
        )
        self._consumers.append(asyncio.create_task(self._listen(self._process)))
        await asyncio.wait_for(self._said["ready"].wait(), READY_S)

    async def _pop_by_broker(self, topic: str, group: str) -> None:
        """Set the group's consume mode to pop at every broker, like mqadmin setConsumeMode."""
        body = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode.POP).encode()
        for seat in self._place.seats.values():
            command = Command(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)
            await self._place.client.request(str(seat.bound), command, SET_MS)

    def read_new_topic(self) -> None:
        self._tell_program("consume late")

    async def stop_sending(self) -> None:
        self._tell_program("stop")
        await asyncio.wait_for(self._said["stopped"].wait(), STOPPED_S)

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await super().close()

    def _reader_command(self) -> list[str]:
        return [*self._program, "reader", self._place.name_server, "backlog"]

    def _tell_program(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode():
            fields = line.split()
            if line.strip() in self._said:
                self._said[line.strip()].set()
            elif fields[:1] == ["S"] and len(fields) == SENT_FIELDS:
                self._sent(fields[1:])
            elif fields[:1] == ["C"] and len(fields) == CHECKED_FIELDS:
                self._history.checks.append((int(fields[1]), float(fields[2]) - self._began))
            elif fields[:1] == ["R"] and len(fields) == RECEIVED_FIELDS:
                role, number, at, broker, queue_id, offset = fields[1:]
                self._history.receipts.append(
                    Receipt(role, int(number), float(at) - self._began, broker, int(queue_id), int(offset))
                )

    def _sent(self, fields: Sequence[str]) -> None:
        role, number, begun, ended, stored, wanted, delay_s, broker, error, queue_id, offset = fields
        self._history.sends.append(
            Send(
                role,
                int(number),
                float(begun) - self._began,
                float(ended) - self._began,
                stored == "1",
                wanted == "1",
                float(delay_s),
                "" if broker == "-" else broker,
                "" if stored == "1" else error,
                int(queue_id),
                int(offset),
            )
        )
