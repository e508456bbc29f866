"""The kernel: one pure reducer over commands, for one partition.

``apply(command)`` decides, changes the state held here, and returns an `Outcome` with the records to make durable. It
reads no clock and draws nothing: the same commands in the same order give the same bytes, in any process, on any day.

How a command is applied, always in this order:

1. The kernel's tick becomes the command's, unless it is older.
2. Everything due by then is committed: expired leases and finished backoffs, by (due tick, job id) (X-065). A command
   that only lets time pass commits a bounded part of it, so that a batch stays bounded however many leases end at once.
   A new owner and new trust let nothing happen: what is due is decided under them, not before.
3. The command itself is decided.
4. Retries that wait for room take what room there is now, before anyone new can ask (X-042).

A refused command changes nothing. If it also left no trace event, its tick is not remembered either, so that it need
not be recorded for a replay to agree.

Jobs that have ended are not kept: `History` finds them again when a command names one. Memory is therefore bounded by
what is alive, not by what ever was.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush

from detent.canon import UINT64_MAX
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel import commands as cmd
from detent.kernel import handlers, moves
from detent.kernel.outcome import Outcome
from detent.kernel.partition_state import PartitionState
from detent.kernel.queue import Due

TIMELESS = frozenset({cmd.RaiseEpoch, cmd.ChangeTrust})
"""Commands before which nothing that is due is committed."""


class Kernel(PartitionState):
    """The state of one partition and the only code that changes it."""

    def apply(self, command: cmd.Command) -> Outcome:
        """Decide one command and return what it did."""
        handler = handlers.HANDLERS.get(type(command))
        if handler is None:
            raise InvalidInput(f"{type(command).__name__} is not a command of the kernel")
        out = Outcome()
        tick_before = self.tick
        tick = command.tick
        if type(tick) is not int or not 0 <= tick <= UINT64_MAX:
            self.refuse(out, "INVALID_PARAMS", f"tick must be an integer from 0 to 2^64-1, not {show(tick)}", "kernel")
            return out
        due_max: int | None = None
        if type(command) is cmd.AdvanceTick or type(command) is cmd.Resume:
            if (fault := handlers.due_fault(command)) is not None:
                self.refuse(out, "INVALID_PARAMS", fault, "kernel")
                return out
            due_max = command.due_max
            if type(command) is cmd.Resume and not handlers.take_beats(self, command, out):
                return out
        self.tick = max(self.tick, tick)
        due = self._first_due()
        if due is not None and due <= self.tick and type(command) not in TIMELESS:
            self._pass_time(out, tick_before, due_max)
        handler(self, command, out)
        if self._waiting:
            self._settle(out)
        if not out.recorded:
            self.tick = tick_before
        return out

    def _pass_time(self, out: Outcome, tick_before: int, due_max: int | None) -> None:
        """Commit what is due, in the order (due tick, job id), all of it or up to a number of records.

        A job whose limit and whose lease run out at the same tick is stopped by the limit: that it ran too long is known,
        that its worker is lost is a guess.
        """
        while (due := self.next_due()) is not None and due <= self.tick:
            if due_max is not None and len(out.records) >= due_max:
                return
            limit = self.queue.next_due()
            timer = (*self._timers[0][:2], 1) if self._timers and self._timers[0][0] == due else None
            if limit is not None and limit.tick == due and (timer is None or (*limit[:2], 0) < timer):
                self._reach(limit, out)
                continue
            _, job_id, _ = heappop(self._timers)
            job = self.jobs[job_id]
            if job.state == "RUNNING":
                moves.expire(self, job, out)
                continue
            line = self.queue.line(job_id, job.priority)
            if not self._waiting.get(line) and self.queue.has_room(line):
                self.requeue(out, job)
            else:
                heappush(self._waiting.setdefault(line, []), (due, job_id, job.transition_seq))
                # It waits for room now, no longer for its tick: a clock turned back before that tick would let it go early.
                out.changed |= due > tick_before

    def _reach(self, due: Due, out: Outcome) -> None:
        """Carry out what the queue said is due."""
        if due.code is None:
            self.queue.lapsed(due.job_id)
            out.changed = True
        else:
            moves.abort(self, self.jobs[due.job_id], due.code, out)

    def _settle(self, out: Outcome) -> None:
        """Give free places to waiting retries, by (ready tick, class from the top, job id)."""
        while True:
            best: tuple[int, int, str] | None = None
            chosen: Hashable = None
            for line, retries in list(self._waiting.items()):
                while retries and (
                    (job := self.jobs.get(retries[0][1])) is None or job.transition_seq != retries[0][2]
                ):
                    heappop(retries)
                if not retries:
                    del self._waiting[line]
                elif self.queue.has_room(line):
                    candidate = (retries[0][0], -self.jobs[retries[0][1]].priority, retries[0][1])
                    if best is None or candidate < best:
                        best, chosen = candidate, line
            if best is None:
                return
            heappop(self._waiting[chosen])
            self.requeue(out, self.jobs[best[2]])
