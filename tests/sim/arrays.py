"""Array jobs in the small world: workers that compute elements, are lost in the middle, and report late or never.

The ledger, the reading of earlier reports (`Backend`, `HomeBench`), the putting together of an attempt (`executor.plain.arrays`), its report
and its end (`workers.reports`) are the real ones; only the elements are computed here. `ElementTruth` knows what was computed and reads
what was recorded: every element's outcome is recorded once and stays, and none is computed again that was recorded as done.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from detent.canon import json_encode
from detent.executor.assignment import Assignment
from detent.executor.plain import wire
from detent.executor.plain.arrays import PIECES_FROM, Array
from detent.executor.plain.verdict import Ended
from detent.jobs.elements import FAILED, OPEN, SUCCEEDED
from detent.jobs.order import Call, ElementOrder, Order
from detent.jobs.work import Result
from detent.kernel import Finish, Grant, Outcome
from detent.kernel.outcome import COMMITTED
from detent.ledger.signing import report_named
from detent.owner.backend import Backend
from detent.owner.content import seal_value
from detent.reuse.witness import Witnessed
from detent.store.api import Store, StoreReader
from detent.store.content import ContentFiles
from detent.workers.home_bench import HomeBench
from detent.workers.reports import Reporter, closing_command
from tests.owner.rig import RESULT_KEY, submit
from tests.sim.world import Message, World

ELEMENTS = range(2, 7)
RETRIED, FINAL = "INTERNAL_ERROR", "VALIDATION_ERROR"


class SimulatedBackend(Backend):
    """The backend on the store of a world: it reads what the ledger says, and keeps nothing in memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._cache, self._reports = OrderedDict(), OrderedDict()
        self._files = ContentFiles(Path("large-content-of-no-world"))
        self._result_key = RESULT_KEY
        self.random = world.random.randbytes

    @property
    def reader(self) -> StoreReader:
        """The world's store as it is now."""
        return self._world.store

    def _remember(self, digest: bytes, data: bytes) -> None:
        """Not at all: a restart would have forgotten it."""


class ElementTruth:
    """What was recorded of every element, held against what its workers computed."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self._backend = backend
        self._position = 0
        self.computed: dict[tuple[str, bytes], set[int]] = {}
        """By job and lease: the elements that a worker has an outcome for."""
        self.settled: dict[tuple[str, int], tuple[int, bytes | None, int]] = {}
        """By job and place: code, value and attempt, as recorded."""

    def read(self, store: Store) -> None:
        """Fold the reports that were recorded since the last look."""
        for row in store.records(0, self._position):
            self._position = row.position + 1
            digest = report_named(row.evidence) if row.kind == "transition" and row.evidence else None
            report = None if digest is None else self._backend.report(digest)
            if report is None or report.result.elements is None:
                continue
            elements, computed = report.result.elements, self.computed[report.job_id, report.lease_id]
            for place, code in enumerate(elements.codes):
                attempt = elements.attempts.get(place, report.attempt_id)
                self._take(report.job_id, place, (code, elements.values[place], attempt), report.attempt_id, computed)

    def _take(
        self, job_id: str, place: int, said: tuple[int, bytes | None, int], attempt: int, computed: set[int]
    ) -> None:
        known, (code, _, settled_in) = self.settled.get((job_id, place)), said
        name = f"{job_id}.{place}"
        if known is not None and known[0] == SUCCEEDED:
            assert said == known, f"{name} had succeeded, and another report says {said} instead of {known}"
        elif code == OPEN:
            assert place not in computed, f"{name} was computed, and its report does not say so"
        elif settled_in == attempt:
            assert place in computed, f"{name} was not computed in attempt {attempt}"
        else:
            assert known == said, f"{name} is said to have ended in attempt {settled_in}, which did not record that"
        if code != OPEN:
            self.settled[job_id, place] = said

    def is_done(self, job_id: str, place: int) -> bool:
        """Whether an element was recorded as done."""
        return self.settled.get((job_id, place), (OPEN,))[0] == SUCCEEDED


class ArrayWorld(World):
    """A world in which most jobs are arrays."""

    def __init__(self, seed: int, directory: Path | None) -> None:
        super().__init__(seed, directory)
        self.orders: dict[str, Order] = {}
        self.backend = SimulatedBackend(self)
        self.elements = ElementTruth(self.backend)
        self.attempted: dict[bytes, tuple[Finish, tuple[tuple[bytes, bytes], ...]]] = {}
        """What the worker of each lease reports, however often it does."""
        self.lost_in_the_middle = self.carried_over = 0
        for weight, action in (
            (30, self.send_array),
            (30, self.send_claim),
            (40, self.send_result),
            (30, self.deliver),
        ):
            self.actions.append((weight, action))

    def send_array(self) -> None:
        """A new array of a few elements."""
        self.number += 1
        job_id = f"array-{self.number}"
        self.jobs.append(job_id)
        call = Call(kind="python", target="work:double", base=None, arguments=(), keywords={})
        elements = tuple(ElementOrder((number,)) for number in range(self.random.choice(ELEMENTS)))
        order = self.orders[job_id] = Order(call, "work:double", elements=elements)
        sealed = seal_value(cast("Any", order.document()), self.random.randbytes(16), name="order")
        digest, inline = self.backend.store(sealed)
        retries = self.random.randint(0, 3)
        command = submit(job_id, payload_digest=digest, max_retries=retries, retry_categories=(RETRIED,))
        self.send("submitter", command, content=tuple(inline))

    def send_end(self, worker: str, grant: Grant) -> None:
        """How an attempt ended: with all elements, or with those that had ended when its worker was lost."""
        if grant.job_id not in self.orders:
            super().send_end(worker, grant)
            return
        if self.random.random() < 0.1:  # All that it computed is lost with it.
            lost = Finish(0, grant.job_id, grant.lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST")
            self.attempted.setdefault(grant.lease_id, (lost, ()))
        command, content = self.ended(grant, well=self.random.random() < 0.3)
        self.send(worker, command, content=content)

    def send_good_result(self, grant: Grant) -> None:
        if grant.job_id not in self.orders:
            super().send_good_result(grant)
            return
        command, content = self.ended(grant, well=True)
        self.send(grant.replica_id, command, content=content)

    def ended(self, grant: Grant, *, well: bool) -> tuple[Finish, tuple[tuple[bytes, bytes], ...]]:
        """How the worker of a lease ends its attempt; the first time it begins it."""
        if grant.lease_id not in self.attempted:
            order, result = self.orders[grant.job_id], self._attempt(grant, well=well)
            (reported,) = Reporter(self.backend, grant.replica_id).report([(grant, result, Witnessed("sim"), order)])
            self.attempted[grant.lease_id] = closing_command(grant, result, reported), tuple(reported.inline)
        return self.attempted[grant.lease_id]

    def hear(self, message: Message, outcomes: list[Outcome]) -> None:
        """What a worker computed is recorded once its report was taken."""
        super().hear(message, outcomes)
        self.elements.read(self.store)
        for command, outcome in zip(message.commands, outcomes, strict=True):
            if isinstance(command, Finish) and outcome.status == COMMITTED:
                computed = self.elements.computed.get((command.job_id, command.lease_id), set())
                missing = {place for place in computed if (command.job_id, place) not in self.elements.settled}
                assert not missing, (
                    f"elements {sorted(missing)} of {command.job_id} were reported, and are not recorded"
                )

    def _attempt(self, grant: Grant, *, well: bool) -> Result:
        """Compute the elements of an attempt, as far as its worker comes."""
        self.elements.read(self.store)
        order = self.orders[grant.job_id]
        bench = cast("HomeBench", SimpleNamespace(_quotas={}, _backend=self.backend))
        allowed = HomeBench.allowance(bench, grant, order)
        task = Assignment(1, grant.job_id, grant.attempt_id, order, {}, None, allowed.earlier, allowed.retried)
        array = Array(task)
        again = [place for place in array.places if self.elements.is_done(grant.job_id, place)]
        assert not again, f"elements {again} of {grant.job_id} are done, and attempt {grant.attempt_id} runs them again"
        self.carried_over += len(array.places) < len(order.elements)
        journal, comes_to = b"", len(array.places) if well else self.random.randint(0, len(array.places))
        for place in array.places[:comes_to]:
            journal += self._element(place, well=well or self.random.random() < 0.7)
        computed = self.elements.computed.setdefault((grant.job_id, grant.lease_id), set())
        computed.update(array.places[:comes_to])
        if array.places:
            array.pieces[PIECES_FROM] = array.places
            array.bury(
                PIECES_FROM, journal, Ended(), "sim"
            )  # Killed from outside; with a whole journal, after its last element.
        self.lost_in_the_middle += comes_to < len(array.places)
        return array.result()

    def _element(self, place: int, *, well: bool) -> bytes:
        """What a worker writes down about one element."""
        if well:
            return wire.write_element((place, wire.OK, 1, 1), (json_encode(2 * place), b"", b"", b""))
        category = self.random.choice([RETRIED, FINAL])
        said = json.dumps({"category": category, "code": "TASK_FAILED", "message": "simulated"}).encode()
        return wire.write_element((place, 0, 1, 1), (b"", said, b"", b""))

    def look(self) -> None:
        super().look()
        self.elements.read(self.store)

    def check_counts(self) -> None:
        """Every element of an array that ended has one outcome, as its job's end says."""
        super().check_counts()
        for row in self.store.jobs():
            order = self.orders.get(row.job_id)
            if order is None or row.state not in {"SUCCEEDED", "FAILED"}:
                continue
            codes = [self.elements.settled.get((row.job_id, place), (OPEN,))[0] for place in range(len(order.elements))]
            if row.state == "SUCCEEDED":
                assert set(codes) == {SUCCEEDED}, f"{row.job_id} succeeded with {codes}"
                values = [self.elements.settled[row.job_id, place][1] for place in range(len(codes))]
                assert values == [json_encode(2 * place) for place in range(len(codes))]
            elif OPEN not in codes:
                assert FAILED in codes, f"{row.job_id} failed without an element that did"
