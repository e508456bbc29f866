"""A pool of plain processes, as the supervisor holds it.

The rules of this file:

* Each worker has a socket from which it takes its tasks one by one, and several may wait there, so that it need not wait for
  us. We keep the worker's end of that socket too. A task it has not taken can be taken back: for a worker that has nothing to
  do, because a task was cancelled, or because the worker is gone. A message goes to one reader, so a task is begun once.
* A worker answers in the order in which it takes. When it is dead, what it has not answered and we cannot take back is what
  it was running: one task, or none.
* Nothing here blocks but `wait`, `close`, and the moment in which a host that was killed is replaced.

Not for several threads, `wake` and `cancel` excepted. Deadlines are looked at in `wait`: a supervisor calls it often.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from detent.errors import InvalidInput, StoreUnavailable
from detent.executor.assignment import OUTPUT_BYTES_MAX, VALUE_BYTES_MAX, Assignment, Progress
from detent.executor.plain import heard, verdict, wire
from detent.executor.plain.arrays import PIECES_FROM, Array
from detent.executor.plain.dealing import Dealer
from detent.executor.plain.host_process import HostProcess
from detent.executor.plain.link import Link, PoolFailed, import_paths
from detent.executor.plain.measure import Watch
from detent.executor.plain.slot import Entry, Slot, entry_of
from detent.executor.plain.sweep import Presence
from detent.executor.plain.telling import NO_MESSAGE
from detent.jobs.work import Result, Usage
from detent.store.content import ContentFiles

__all__ = ["Pool", "PoolFailed"]

WORKERS_MAX: Final = 1024
MESSAGE_SECONDS_MAX: Final = 2.0
"""How long after an exception its message may come."""
FAILURES_MAX: Final = 20
"""Hosts or workers that end, one after the other, without one being born."""
GRACE_MS: Final = 500
CLOSE_SECONDS_MAX: Final = 5.0
WAIT_SECONDS_MAX: Final = 3600.0
"""At one time; the kernel takes no more than 2^31 ms, and a deadline may be further away."""
GONE_MS_MAX: Final = 5000
"""How long killed workers may take to go."""
_NO_TASK: Final = -1


class Pool:
    """Runs the user's own trusted functions and commands in ``workers`` child processes.

    ``live`` is where the workers can be watched, ``content`` the directory of the home's content store. The environment is the
    user's own unless another is given, and modules are looked for where this process looks for them. ``preload`` names modules of
    ours that most tasks load: host and workers load them while they wait. ``host`` was started before, with this process's own
    interpreter and environment; the pool
    takes it over if it fits.
    """

    def __init__(  # noqa: PLR0913 - settings, all but the first by name
        self,
        workers: int,
        *,
        live: Path,
        content: Path,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        paths: Sequence[str] | None = None,
        preload: Sequence[str] = (),
        host: HostProcess | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        value_bytes_max: int = VALUE_BYTES_MAX,
        grace_ms: int = GRACE_MS,
    ) -> None:
        if not 1 <= workers <= WORKERS_MAX:
            raise InvalidInput(f"a pool has 1 to {WORKERS_MAX} workers, not {workers}")
        self.grace_ms = grace_ms
        """Between asking a task to end and ending it."""
        self._settings: dict[str, Any] = {
            "paths": import_paths(python, paths),
            "preload": list(preload),
            "content": str(content.absolute()),
            "output_bytes_max": output_bytes_max,
            "value_bytes_max": value_bytes_max,
        }
        self._python, self._environment = python, environment
        self._content = content
        self._dealer = Dealer()
        self._slots = self._dealer.slots
        self._told: list[tuple[int, Result] | Progress] = []
        self._requests: deque[int] = deque()
        self._cancelled: set[int] = set()
        self._known: set[int] = set()
        self._arrays: dict[int, Array] = {}
        """Those under way, by their own numbers and by those of their pieces."""
        self._pieces = PIECES_FROM
        self._watch = Watch()
        self._limits: dict[int, int] = {}
        """How much memory tasks under way may use, where that is limited."""
        self._next_worker = 1
        self._failures = 0
        self._failure: PoolFailed | None = None
        self._is_closing = self._is_closed = False
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._by_descriptor: dict[int, Slot] = {}
        if host is not None and not host.fits:
            host.drop()
            host = None
        self._presence = Presence(live, None if host is None else host.tag)
        try:
            self._link = self._start(host)
        except BaseException:
            self._presence.close()
            raise
        for _ in range(workers):
            self._spawn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many tasks are under way: submitted, and not yet returned by `wait`."""
        return len(self._known) + sum(type(told) is tuple for told in self._told)

    @property
    def host_pid(self) -> int:
        """The process that the workers are children of."""
        return self._link.process.pid

    @property
    def worker_pids(self) -> list[int]:
        """The workers that have been born."""
        return [slot.pid for slot in self._slots.values() if slot.pid]

    def fileno(self) -> int:
        """A descriptor that can be read when `wait` has something to do."""
        return self._epoll.fileno()

    def submit(self, task: Assignment) -> None:
        """Take a task. More than `wanted` are taken too; they wait here."""
        if self._is_closing:
            raise PoolFailed("the pool is closed")
        if task.number in self._known:
            raise InvalidInput(f"task {task.number} is under way already")
        if task.order.elements:
            self._submit_array(Array(task))
            return
        entry = entry_of(task, self._large_path)
        self._known.add(task.number)
        if (memory_bytes := task.memory_bytes) is not None:
            self._limits[task.number] = memory_bytes
            self._link.limit(task.number, memory_bytes)
        self._dealer.add(entry)

    def _submit_array(self, array: Array) -> None:
        if not array.places:
            self._told.append((array.task.number, array.result()))
            return
        piece = self._piece(array, array.places)
        self._known.add(array.task.number)
        self._arrays[array.task.number] = array
        self._dealer.add(piece)

    def _piece(self, array: Array, places: Sequence[int]) -> Entry:
        """Some elements of an array as a task of their own."""
        self._pieces += 1
        entry = entry_of(replace(array.task, number=self._pieces), self._large_path, places)
        array.pieces[self._pieces] = places
        self._arrays[self._pieces] = array
        return entry

    def wanted(self) -> int:
        """How many more tasks the workers can use now, so that none of them has to wait."""
        return self._dealer.room()

    def due(self) -> float | None:
        """In how many seconds `wait` must be called although the descriptor is silent; None if it need not."""
        return self._patience(None)

    def seen(self, number: int) -> Usage | None:
        """What a running task has used so far, by looks from outside; None before they can tell."""
        holder = self._dealer.holder(number)
        return None if holder is None else self._watch.of(holder, number)

    def wake(self) -> None:
        """Make `wait` return; for other threads."""
        os.eventfd_write(self._bell, 1)

    def cancel(self, number: int) -> None:
        """Ask for the end of a task, from any thread; `wait` returns its result as usual. Unknown numbers are ignored."""
        if not self._is_closed:
            self._requests.append(number)
            self.wake()

    def wait(self, timeout: float | None = None) -> list[tuple[int, Result] | Progress]:
        """What has ended, by the numbers of the tasks, and what running tasks said of themselves, in the order of its coming.

        Waits for the first of it, for `wake`, for news of a worker, or for so many seconds.
        """
        if self._failure is not None and not self._is_closing:
            raise self._failure
        self._serve_requests()
        self._dealer.deal()
        patience = self._patience(timeout)
        if busy := self._dealer.is_busy():
            left = max(0.0, self._watch.next_look - time.monotonic())
            patience = left if patience is None else min(patience, left)
        for descriptor, _ in self._epoll.poll(patience):
            slot = self._by_descriptor.get(descriptor)
            if slot is not None:
                self._hear(slot)
            elif descriptor == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            elif descriptor == self._link.control.fileno():
                self._hear_host()
        self._serve_requests()
        if busy and (now := time.monotonic()) >= self._watch.next_look:
            self._watch.look(self._slots.values(), now)
        if any(slot.deadline is not None for slot in self._slots.values()):
            self._look_at_deadlines()
        told, self._told = self._told, []
        return told

    def close(self, grace: float = 0.0) -> list[tuple[int, Result]]:
        """End everything, and leave no process and no file; unfinished tasks are reported as cancelled.

        What runs may go on for ``grace`` seconds; what waits is not begun any more.
        """
        if self._is_closed:
            return []
        self._is_closing = True
        for entry in self._dealer.take_all():
            self._finish(entry, verdict.DROPPED)
        deadline = time.monotonic() + grace
        told: list[tuple[int, Result] | Progress] = []
        while self._known and (left := deadline - time.monotonic()) > 0:
            told += self.wait(left)
        for number in self._known:
            self.cancel(number)
        deadline = time.monotonic() + self.grace_ms / 1000 + CLOSE_SECONDS_MAX
        while self._known:
            told += self.wait(1.0)
            if time.monotonic() > deadline:
                self._link.process.kill()  # Halted, or worse; its workers go with it.
        self._is_closed = True
        for slot in self._slots.values():
            slot.ours.close()
        self._link.end(self.grace_ms)
        for slot in self._slots.values():
            slot.close()
        self._watch.close()
        self._presence.kill_all()
        self._sweep_content()
        self._presence.close()
        self._epoll.close()
        os.close(self._bell)
        told += self._told
        return [one for one in told if not isinstance(one, Progress)]

    def _start(self, host: HostProcess | None = None) -> Link:
        if host is None:
            preload = self._settings["preload"]
            try:
                host = HostProcess(self._python, self._environment, preload=preload, tag=self._presence.tag)
            except OSError as exc:
                raise PoolFailed(
                    f"cannot start {self._python}: {exc.strerror}", hint="name a Python that is there"
                ) from exc
        link = Link(host, {**self._settings, "marker": self._presence.marker})
        self._epoll.register(link.control.fileno(), select.EPOLLIN)
        return link

    def _spawn(self) -> None:
        worker, self._next_worker = self._next_worker, self._next_worker + 1
        slot = Slot(worker, self._presence.live / f"{self._presence.tag}.{worker}")
        self._slots[worker] = self._by_descriptor[slot.ours.fileno()] = slot
        self._epoll.register(slot.ours.fileno(), select.EPOLLIN)
        self._link.spawn(worker, str(slot.directory), slot.theirs)

    def _large_path(self, number: int) -> str:
        return str(self._presence.live / f"{self._presence.tag}.task-{number}")

    def _serve_requests(self) -> None:
        while self._requests:
            number = self._requests.popleft()
            if number not in self._known or number in self._cancelled:
                continue
            self._cancelled.add(number)
            for one in list(self._arrays[number].pieces) if number in self._arrays else (number,):
                entry = self._dealer.take(one)
                if entry is not None:
                    self._finish(entry, verdict.DROPPED)
                elif (holder := self._dealer.holder(one)) is not None:
                    self._link.stop(holder.worker, one, self.grace_ms)

    # Time.

    def _patience(self, timeout: float | None) -> float | None:
        if self._told:
            return 0
        nearest = min((slot.deadline for slot in self._slots.values() if slot.deadline is not None), default=None)
        if nearest is None:
            return timeout
        left = min(max(0.0, nearest - time.monotonic()), WAIT_SECONDS_MAX)
        return left if timeout is None else min(left, timeout)

    def _look_at_deadlines(self) -> None:
        now = time.monotonic()
        for slot in self._slots.values():
            if slot.deadline is None or slot.deadline > now:
                continue
            slot.deadline = None
            if slot.half is not None:
                self._dealer.leave(slot)
                self._link.stop(slot.worker, None, 0)
                self._finish_half(slot, None)
            elif slot.entries:
                slot.over_time = next(iter(slot.entries))
                self._link.stop(slot.worker, slot.over_time, self.grace_ms)

    # What workers say.

    def _hear(self, slot: Slot) -> None:
        for message in slot.messages():
            speaker = slot.speaker
            if slot.answered is not None and _is_of(message, slot.answered):
                self._heard_again(slot, message[0])
                continue
            try:
                self._take(slot, message, speaker)
            except heard.Garbled as exc:
                self._distrust(slot, speaker, exc)
        if slot.garbled and slot.speaker is None:
            self._link.stop(slot.worker, None, 0)

    def _heard_again(self, slot: Slot, kind: int) -> None:
        """More is said of a task that has answered: how far it was, or a second end, and one of the two is not its worker's."""
        if kind not in (wire.BEGUN, wire.PROGRESS) and not slot.garbled:
            slot.garbled[_NO_TASK] = "a task ended twice"
            self._dealer.leave(slot)

    def _distrust(self, slot: Slot, speaker: Entry | None, why: heard.Garbled) -> None:
        """The user's code speaks in its worker's name: that task has failed, and no other is given to its process.

        A task that the process has begun since goes on: its own words are known by its token.
        """
        number = _NO_TASK if speaker is None else speaker.task.number
        if number in slot.garbled:
            return
        slot.garbled[number] = str(why)
        self._dealer.leave(slot)
        if speaker is not None:
            self._link.stop(slot.worker, number if isinstance(why, heard.Foreign) else None, 0)

    def _take(self, slot: Slot, message: bytes, speaker: Entry | None) -> None:
        kind, entries = message[0], slot.entries
        if kind in (wire.BEGUN, wire.PROGRESS):
            if speaker is None or not heard.names(message, speaker.task.number):
                raise heard.Foreign("a message names a task that the worker does not run")
        elif speaker is None or message[-wire.TOKEN_BYTES :] != speaker.token:
            raise heard.Foreign("a message is not its worker's own")
        else:
            message = message[: -wire.TOKEN_BYTES]
        if kind == wire.DONE:
            self._take_done(slot, heard.done(message, entries))
        elif kind == wire.DONE_IN_FILE:
            large = slot.read_large(heard.number(message, entries))
            self._take_done(slot, heard.done(large, entries))
        elif kind == wire.BEGUN:
            wall_ms = entries[heard.number(message, entries)].task.order.limits.wall_ms or 0
            slot.deadline = heard.begun(message) + wall_ms / 1000
        elif kind == wire.MESSAGE:
            self._finish_half(slot, message[wire.SHORT.size :].decode("utf-8", "replace"))
        elif kind == wire.PROGRESS:
            if (progress := heard.progress(message)) is not None:
                self._told.append(progress)
                slot.show(progress)
        elif kind == wire.RETURNED:
            number = heard.number(message, entries)
            back = entries.pop(number)
            self._dealer.leave(slot)
            if self._owner_of(number) in self._cancelled:
                self._finish(back, verdict.DROPPED)
            else:
                self._dealer.first([back])
        else:
            raise heard.Garbled(f"a message is of the unknown kind {kind}")

    def _take_done(self, slot: Slot, read: wire.DoneRead) -> None:
        if (array := self._arrays.get(read.number)) is not None:
            array.hear(read)
        entry = slot.entries.pop(read.number)
        slot.deadline = None
        slot.cpu_us += read.cpu
        if read.flags & wire.RETIRING:
            self._dealer.leave(slot)
        if read.flags & wire.MESSAGE_FOLLOWS:
            slot.half = (entry, read)
            slot.deadline = time.monotonic() + MESSAGE_SECONDS_MAX
            return
        self._dealer.learn(read.wall)
        self._take_told(slot, entry, read, None)

    def _take_told(self, slot: Slot, entry: Entry, read: wire.DoneRead, message: str | None) -> None:
        """What a worker said of a task is complete."""
        slot.answered = entry
        if (array := self._arrays.get(entry.task.number)) is None:
            garbled = slot.garbled.get(entry.task.number)
            told = verdict.told(read, slot.name, self._wall_ms_met(slot, entry), message, garbled)
            self._finish(entry, self._seen(slot, entry, told))
            return
        rest, size = array.take(entry.task.number, read, slot.name, message)
        self._go_on(entry, array, [rest[start : start + size] for start in range(0, len(rest), size)])

    def _go_on(self, entry: Entry, array: Array, pieces: Sequence[Sequence[int]]) -> None:
        """A piece of an array is over: deal what is left of it, or finish the array."""
        if pieces and self._owner_of(entry.task.number) not in self._cancelled:
            self._dealer.first([self._piece(array, places) for places in pieces])
        self._forget_piece(entry, array)

    def _forget_piece(self, entry: Entry, array: Array) -> None:
        del self._arrays[entry.task.number]
        if entry.file is not None:
            Path(entry.file).unlink(missing_ok=True)
        if not array.pieces:
            del self._arrays[array.task.number]
            self._finish(Entry(array.task, b"", None, b""), array.result())

    def _owner_of(self, number: int) -> int:
        """The assignment that a task is, or is a piece of."""
        return self._arrays[number].task.number if number in self._arrays else number

    def _finish_half(self, slot: Slot, message: str | None) -> None:
        if slot.half is None:
            return
        entry, read = slot.half
        slot.half = slot.deadline = None
        self._take_told(slot, entry, read, NO_MESSAGE if message is None else message)

    def _seen(self, slot: Slot, entry: Entry, result: Result) -> Result:
        return verdict.seen(result, self._watch.of(slot, entry.task.number))

    def _wall_ms_met(self, slot: Slot, entry: Entry) -> int | None:
        return entry.task.order.limits.wall_ms if slot.over_time == entry.task.number else None

    def _finish(self, entry: Entry, result: Result) -> None:
        number = entry.task.number
        if (array := self._arrays.get(number)) is not None:
            array.drop(number)
            self._forget_piece(entry, array)
            return
        self._known.discard(number)
        if self._limits.pop(number, None) is not None:
            self._link.limit(number, None)
        if entry.file is not None:
            Path(entry.file).unlink(missing_ok=True)
        if number in self._cancelled:
            self._cancelled.discard(number)
            result = verdict.cancelled(result)
        self._told.append((number, result))

    # What the host says.

    def _hear_host(self) -> None:
        for said, descriptor in self._link.news():
            if not said:
                self._replace_host()
                return
            slot = self._slots.get(said.get("born") or said.get("died") or 0)
            if slot is None:
                continue
            if "born" in said:
                slot.pid, slot.pidfd = said["pid"], descriptor
                self._failures = 0
                continue
            self._bury(slot, said)
            self._sweep_content()
            if said.get("failed") or (
                os.WIFEXITED(said["status"]) and os.WEXITSTATUS(said["status"]) == wire.CRASH_STATUS
            ):
                self._count_failure(f"{said.get('failed') or 'a worker could not begin'} {self._link.last_words()}")
            if not self._is_closing:
                self._spawn()

    def _count_failure(self, why: str) -> None:
        self._failures += 1
        if self._failures >= FAILURES_MAX and not self._is_closing:
            self._failure = PoolFailed(f"workers cannot be started: {why}".strip())
            raise self._failure

    def _bury(self, slot: Slot, said: Mapping[str, Any]) -> None:
        """A worker is gone: read its last messages, take back what it had not begun, and report how the rest ended."""
        self._hear(slot)
        back = slot.take_back()
        self._finish_half(slot, None)
        for entry in slot.entries.values():
            over_time = slot.over_time == entry.task.number
            end = slot.ended(said, int(time.time() * 1e6), entry.task.number)
            if (array := self._arrays.get(entry.task.number)) is not None:
                rest = array.bury(entry.task.number, slot.read_journal(entry.task.number), end, slot.name)
                self._go_on(entry, array, [rest] if rest else [])
                continue
            self._finish(entry, self._seen(slot, entry, verdict.ended(entry.task, end, slot.name, over_time=over_time)))
        slot.entries.clear()
        self._watch.forget(slot)
        self._dealer.first(back)
        self._epoll.unregister(slot.ours.fileno())
        del self._by_descriptor[slot.ours.fileno()], self._slots[slot.worker]
        slot.close()

    def _sweep_content(self) -> None:
        """Remove the half of a file that a worker was writing when it was killed; the task that follows writes its own."""
        with contextlib.suppress(StoreUnavailable):  # The next owner of the home tries again.
            ContentFiles(self._content).sweep_abandoned()

    def _replace_host(self) -> None:
        """The host was killed. Its workers go with it; what they leave is found by its mark. Then all begins anew."""
        self._epoll.unregister(self._link.control.fileno())
        self._presence.kill_all()
        slots = list(self._slots.values())
        for slot in slots:
            slot.is_gone(GONE_MS_MAX)
            self._bury(slot, {"status": signal.SIGKILL})
        self._sweep_content()
        why = self._link.last_words()
        self._link.close()
        self._count_failure(f"their host ended: {why}" if why else "their host ended")
        self._link = self._start()
        for number, memory_bytes in self._limits.items():
            self._link.limit(number, memory_bytes)
        for _ in slots if not self._is_closing else ():
            self._spawn()


def _is_of(message: bytes, answered: Entry) -> bool:
    """Whether a message is of a task that has answered: by its number where tasks may speak themselves, else by its token."""
    if message[0] in (wire.BEGUN, wire.PROGRESS):
        return heard.names(message, answered.task.number)
    return message[-wire.TOKEN_BYTES :] == answered.token
