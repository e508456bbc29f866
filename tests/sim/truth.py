"""What must hold of a history, seen from outside: what was acknowledged, and what the ledger says."""

from __future__ import annotations

from collections import Counter

from detent.canon import decode
from detent.kernel import Command, Finish, Outcome, Submit
from detent.kernel.table import LEGAL, TERMINAL
from detent.store.api import Store


class Truth:
    """What was acknowledged, held against what the ledger says."""

    def __init__(self) -> None:
        self.committed: Counter[tuple[object, ...]] = Counter()
        self.records: dict[tuple[str, int], bytes] = {}
        self.ended: dict[str, str] = {}
        self.ghosts: set[str] = set()
        self.cared_for: set[str] = set()
        """Jobs that the diligent worker holds."""
        self._states: dict[str, tuple[str, int]] = {}
        self._position = 0
        self._tick = 0

    def hear(self, command: Command, outcome: Outcome) -> None:
        """An answer reached its asker."""
        if isinstance(command, Submit | Finish) and outcome.status == "COMMITTED":
            identity = (type(command).__name__, _identity(command))
            self.committed[identity] += 1
            assert self.committed[identity] == 1, f"committed twice: {identity}"
        if outcome.record is not None and outcome.record.transition_seq is not None:
            key = (outcome.record.job_id or "", outcome.record.transition_seq)
            assert self.records.setdefault(key, outcome.record.body) == outcome.record.body, f"two records for {key}"
        if outcome.job is not None and outcome.job.state in TERMINAL:
            job = outcome.job
            assert self.ended.setdefault(job.job_id, job.state) == job.state, f"{job.job_id} ended twice"

    def read(self, store: Store) -> None:
        """Fold what was appended since the last look: legal steps only, one end for each job, time forwards."""
        for row in store.records(0, self._position):
            self._position = row.position + 1
            body = decode(row.body)
            assert body["tick"] >= self._tick, f"record {row.position} goes back in time"
            self._tick = body["tick"]
            if row.kind == "submitted":
                assert row.job_id not in self._states
                self._states[str(row.job_id)] = ("QUEUED", 0)
            elif row.kind == "transition":
                self._take_step(str(row.job_id), body)

    def _take_step(self, job_id: str, body: dict[str, object]) -> None:
        state, seq = self._states[job_id]
        assert (body["from_state"], body["transition_seq"]) == (state, seq), f"{job_id} does not follow on {state}"
        assert (state, body["to_state"]) in LEGAL
        assert body["reason_code"] != "LEASE_EXPIRED" or job_id not in self.cared_for, f"{job_id} lost a live lease"
        self._states[job_id] = (str(body["to_state"]), seq + 1)

    def check(self, store: Store) -> None:
        """Everything that was acknowledged is there, and nothing that was refused."""
        for (job_id, seq), body in self.records.items():
            row = store.transition(job_id, seq)
            assert row is not None, f"an acknowledged transition of {job_id} is lost"
            assert row.body == body
        for job_id, state in self.ended.items():
            assert self._states[job_id][0] == state, f"{job_id} was acknowledged as {state}"
        for kind, *names in self.committed:
            assert kind != "Submit" or names[0] in self._states, f"an acknowledged submission is lost: {names}"
        assert not self.ghosts & self._states.keys(), "a refused job appeared"
        for job in store.jobs():
            assert (job.state, job.transition_seq) == self._states[job.job_id], f"{job.job_id} and its row differ"


def _identity(command: Submit | Finish) -> object:
    if isinstance(command, Submit):
        return command.manifest.job_id
    return (command.job_id, command.lease_id)
