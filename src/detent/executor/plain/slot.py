"""A worker as its supervisor knows it: both ends of its socket, and what it was given."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from detent.canon import json_encode_trusted
from detent.errors import InvalidInput
from detent.executor.assignment import KINDS, PROGRESS, Assignment, Progress, variables
from detent.executor.plain import heard, wire
from detent.executor.plain.capture import END, joined
from detent.executor.plain.verdict import Ended
from detent.jobs.order import Call, ElementOrder, absent_inputs
from detent.jobs.values import restored

_BUFFER_BYTES: Final = 1 << 20
"""Asked of the kernel for each socket; it gives what it allows."""
_SPECS_MAX: Final = 1024
_LARGE_BYTES_MAX: Final = 1 << 30
"""Of one result with its output; far above what a worker is allowed to say."""
_specs: dict[tuple[str, str, str | None, str | None, str | None, tuple[str, ...]], bytes] = {}


class Entry(NamedTuple):
    """A task, and the message that says it."""

    task: Assignment
    message: bytes
    file: str | None
    """Where the task stands when it is too long for a message."""
    token: bytes
    """What the worker's own messages about it end with; the user's code is not told it."""


class Slot:
    """One worker, from the moment it is asked for until it is buried."""

    def __init__(self, worker: int, directory: Path) -> None:
        self.worker = worker
        self.directory = directory
        self.name = directory.name
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.ours, self.theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self.pid = 0
        self.pidfd: int | None = None
        self.entries: dict[int, Entry] = {}
        """What it was given and has not answered, in the order it was given."""
        self.is_leaving = False
        """It takes nothing more."""
        self.deadline: float | None = None
        """When the running task is over its time, or when the message of its exception is."""
        self.over_time: int | None = None
        """The task that was told to stop for being over its time."""
        self.half: tuple[Entry, wire.DoneRead] | None = None
        """What is done but for the message of its exception."""
        self.garbled: dict[int, str] = {}
        """What it said that no worker says, by the task that ran then. It is given nothing more."""
        self.answered: Entry | None = None
        """The task that it answered for last."""
        self.cpu_us = 0
        """Accounted for in what it has answered."""
        # Not shared between workers: pools of one process are driven by threads of their own, and receiving lets them run.
        self._buffer = bytearray(wire.MESSAGE_BYTES_MAX)
        self._view = memoryview(self._buffer)

    @property
    def speaker(self) -> Entry | None:
        """Whose words the next unread message are: those of the task that it answers for next, because it answers in order."""
        return next(iter(self.entries.values()), None) if self.half is None else self.half[0]

    def show(self, progress: Progress) -> None:
        """Let other processes see how far a task is, beside what it prints. A disk that takes nothing hides it and harms nothing."""
        if (entry := self.entries.get(progress.number)) is not None:
            with suppress(OSError):
                told = [entry.task.job_id, progress.fraction, progress.message]
                (self.directory / PROGRESS).write_text(json.dumps(told), encoding="ascii")

    def give(self, entry: Entry) -> bool:
        """Let a task wait in the worker's socket; False when that is full."""
        try:
            self.ours.send(entry.message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        self.entries[entry.task.number] = entry
        return True

    def take_back(self) -> list[Entry]:
        """The tasks that the worker has not taken, in order; they are not its own any more."""
        back: list[Entry] = []
        while self.entries:
            try:
                size = self.theirs.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not size:
                break
            entry = self.entries.pop(wire.SHORT.unpack_from(self._buffer)[1], None)
            if entry is not None:  # Else the worker has answered for a task that it had not taken.
                back.append(entry)
        return back

    def messages(self) -> Iterator[bytes]:
        """What the worker has sent and is still unread."""
        receive = self.ours.recv_into
        while True:
            try:
                size = receive(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not size:
                return
            yield bytes(self._view[:size])
            if not self.entries and self.half is None:
                return  # Nothing is owed, so the look that would find nothing is saved.

    def read_large(self, number: int) -> bytes:
        """What the worker said in a file, which is removed."""
        return self._read(self.directory / f"done-{number}", "a result")

    def read_journal(self, number: int) -> bytes:
        """What the worker wrote down of a piece of an array before it ended; nothing when it did not come to that."""
        try:
            journal = self._read(self.directory / wire.JOURNAL, "the journal of an array")
        except heard.Garbled:
            return b""
        head = wire.NUMBER.pack(number)
        return journal[len(head) :] if journal.startswith(head) else b""

    def _read(self, path: Path, what: str) -> bytes:
        try:
            # Neither a link nor a pipe, which would keep us waiting: the user's code can write in this directory, too.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:  # noqa: PTH123 - opened already
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise heard.Garbled(f"{what} is not in a plain file")
                data = file.read(_LARGE_BYTES_MAX + 1)
            path.unlink()
        except OSError as exc:
            raise heard.Garbled(f"{what} cannot be read from its file: {exc.strerror}") from exc
        if len(data) > _LARGE_BYTES_MAX:
            raise heard.Garbled(f"{what} has more than {_LARGE_BYTES_MAX} bytes")
        return data

    def is_gone(self, timeout_ms: int) -> bool:
        """Whether the process has ended, or ends within this time; True for one that was never born."""
        if self.pidfd is None:
            return True
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    def ended(self, said: Mapping[str, Any], now_us: int, task: int) -> Ended:
        """How the worker ended under a task and what it had written meanwhile, from what the host says of it."""
        garbled = self.garbled.get(task)
        if self.garbled and garbled is None:
            said = {
                **said,
                "status": signal.SIGKILL,
                "stopped": False,
            }  # For what another task said, which is not its fault.
        written = [heard.count(count) for count in said.get("written", (0, 0))]
        (stdout, out_cut), (stderr, err_cut) = (
            joined(self._kept(name), self._kept(name + END), count)
            for name, count in zip(("stdout", "stderr"), written, strict=True)
        )
        return Ended(
            status=said["status"],
            stopped=said.get("stopped", False),
            over_memory=said.get("over_memory"),
            garbled=garbled,
            started_us=heard.count(said.get("started_us", 0)),
            ended_us=now_us,
            cpu_us=max(0, said.get("cpu_us", 0) - self.cpu_us),
            memory_bytes=said.get("memory", 0),
            stdout=heard.stream(stdout, out_cut),
            stderr=heard.stream(stderr, err_cut),
        )

    def _kept(self, name: str) -> bytes:
        try:
            return (self.directory / name).read_bytes()
        except OSError:
            return b""

    def close(self) -> None:
        """Let go of everything; the worker is gone."""
        self.ours.close()
        self.theirs.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
        shutil.rmtree(self.directory, ignore_errors=True)


def entry_of(task: Assignment, large_path: Callable[[int], str], places: Sequence[int] = ()) -> Entry:
    """A task with its message; one that is too long for a message is written to a file. Of an array, these elements."""
    call, origin, elements = task.order.call, task.order.origin, task.order.elements
    if call.kind not in KINDS:
        raise InvalidInput(f"a plain process runs {' and '.join(KINDS)}, not {call.kind!r:.80}")
    context = wire.context_bytes(
        *(task.job_id, origin.run_id, task.attempt_id + 1, task.job_id),
        *(origin.step, origin.index, origin.traceparent),
    )
    if context.count(0) != 6:
        raise InvalidInput("a name in a task's context holds a zero byte")
    token = os.urandom(wire.TOKEN_BYTES)
    message = wire.write_task(
        task.number,
        token,
        task.order.limits.wall_ms or 0,
        _spec(task),
        context,
        json_encode_trusted(
            [_element(place, elements[place], call.keywords) for place in places]
            if places
            else [call.arguments, call.keywords]
        ),
        [_value(*item) for item in task.values.items()] if task.values else [],
        wire.ARRAY if places else wire.TASK,
    )
    if len(message) <= wire.MESSAGE_BYTES_MAX:
        return Entry(task, message, None, token)
    path = large_path(task.number)
    wire.write_file(path, message)
    return Entry(task, wire.SHORT.pack(wire.IN_FILE, task.number) + os.fsencode(path), path, token)


def _element(place: int, own: ElementOrder, keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    return place, own.index, own.arguments, {**keywords, **own.keywords} if own.keywords else keywords


def _value(digest: str, value: bytes | Path) -> tuple[str, bool, bytes]:
    return (digest, True, os.fsencode(value)) if isinstance(value, Path) else (digest, False, value)


def _spec(task: Assignment) -> bytes:
    """What tasks have in common, in one piece: workers remember it by its bytes."""
    call, made_from = task.order.call, task.order.origin.ingredients
    # Equal for equal code, None when it is not known. A worker that was not asked for it before looks whether what it has loaded
    # is still what its files say.
    code = None if "version" in made_from else made_from.get("code")
    inputs, alone = absent_inputs(made_from), task.order.limits.memory_mb is not None
    if call.env or inputs or call.outputs or alone:
        env = variables({name: restored(value, task.load, lambda file: file) for name, value in call.env.items()})
        return _written(call, code, env, inputs, alone=alone)
    key = (call.kind, str(call.target), call.base, call.cwd, code, call.shell)
    spec = _specs.get(key)
    if spec is None:
        if len(_specs) >= _SPECS_MAX:
            _specs.clear()
        spec = _specs[key] = _written(call, code, {}, (), alone=False)
    return spec


def _written(call: Call, code: str | None, env: dict[str, str], inputs: tuple[str, ...], *, alone: bool) -> bytes:
    return json.dumps(
        [
            *(call.kind, str(call.target), call.base, call.cwd, code),
            *(env, inputs, dict(call.outputs), call.shell, alone),
        ],
        separators=(",", ":"),
    ).encode()
