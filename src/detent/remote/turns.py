"""Takes the turns of a worker: one that waits at the server, and one that goes at once when there is something to tell.

Two threads take turns at it, so that a finished job is reported while the other one waits; its turn has the higher number and the
server answers the older one then. A third thread looks at the clock: it gives leases up whose time is over, whatever the network does. A
fourth one looks at what jobs print, while a client of the server does.

A turn that is not answered is sent again under the same number, with pauses from 0.2 s to 5 s, or a sixth of the shortest lease. Nothing that was finished is lost meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from detent.access.turn import WAIT_MS_MAX, Answer, Granted, Turn, read_answer
from detent.errors import DetentError, registered
from detent.jobs.order import read_order
from detent.jobs.source_tree import NAMED, read_tree, tree_of
from detent.owner.content import open_value
from detent.remote.bench import Held, RemoteBench
from detent.remote.outbox import Outgoing
from detent.remote.problems import AnswerInvalid
from detent.remote.signed import SignedRequests, told_number
from detent.store.content import ContentFiles
from detent.store.trees import DIRECTORY as TREES
from detent.store.trees import lay_out_again

PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS: Final = 5.0
"""How long an answer may take beyond the wait that was asked for."""
BEATS_PER_LEASE: Final = 3
TRIES_PER_LEASE: Final = 6
"""A server that goes on after it was stopped waits for a third of a lease to hear of it; so pauses are shorter than that."""
FETCHERS: Final = 4
"""Jobs whose content is fetched at once."""
OUTPUT_SECONDS: Final = 0.3
"""How often the output of watched jobs is looked at."""
FINAL: Final = frozenset(
    {"WORKER_RETIRED", "PROTOCOL_UNSUPPORTED", "UNAUTHENTICATED", "SERVER_UNTRUSTED", "ENROLMENT_REFUSED"}
)
"""Refusals that no repeat changes: the worker ends."""


class TurnTaker:
    """The threads that take turns."""

    def __init__(self, bench: RemoteBench, requests: SignedRequests, *, tell: Callable[[str], None]) -> None:
        self._bench, self._requests, self._tell = bench, requests, tell
        self._files: ContentFiles = bench.files
        self._work = bench.work
        self._fetchers = ThreadPoolExecutor(FETCHERS, "detent-fetch")
        self._stopping = threading.Event()
        self.failure: DetentError | None = None
        """Why the worker cannot go on; None while it can."""
        self.asked_to_drain = threading.Event()
        self._under_way = 0
        self._waits = False
        self._wanted = 0
        """What the turn that waits asked for."""
        self._is_away = False
        self._threads = [
            *(threading.Thread(target=self._run, name=f"detent-turn-{one}", daemon=True) for one in range(2)),
            threading.Thread(target=self._fence, name="detent-fence", daemon=True),
            threading.Thread(target=self._follow, name="detent-output", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def flush(self, seconds: float) -> bool:
        """Wait until everything was told, or for so long."""
        deadline = time.monotonic() + seconds
        with self._bench.changed:
            while len(self._bench.outbox) and self.failure is None and (left := deadline - time.monotonic()) > 0:
                self._bench.changed.wait(left)
            return not len(self._bench.outbox)

    def stop(self) -> None:
        """Take no more turns; those that wait are left to the server."""
        self._stopping.set()
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        with self._bench.changed:
            self._bench.changed.notify_all()

    # -- a turn --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() and self.failure is None:
            turn = self._next()
            if turn is None:
                continue
            try:
                self._take(turn)
            except DetentError as exc:
                self._bench.not_sent(turn)
                self._judge(exc)
            except BaseException as exc:  # noqa: BLE001 - the worker ends, and says why
                self._bench.not_sent(turn)
                self._fail(DetentError(f"a turn failed: {exc!r}", code="INVARIANT_VIOLATION"))

    def _next(self) -> Turn | None:
        """The turn to send now; None when another look is due."""
        bench = self._bench
        with bench.changed:
            if self._under_way == 0 or (self._waits and self._under_way == 1 and self._is_urgent()):
                wait_ms = 0 if bench.is_draining and not bench.leases else self._wait_ms()
                turn = bench.compose(wait_ms, self._requests.now_ms())
                if self._under_way and not (turn.reports or turn.ended or turn.logs or turn.wanted > self._wanted):
                    return None
                self._under_way += 1
                self._waits, self._wanted = True, turn.wanted
                return turn
            bench.changed.wait(1.0)
            return None

    def _is_urgent(self) -> bool:
        bench = self._bench
        if bench.outbox.has_fresh or bench.output.has_fresh:
            return True
        return not self._wanted and bench.vacant > 0 and not bench.outbox.is_full

    def _wait_ms(self) -> int:
        return min(WAIT_MS_MAX, int(self._shortest_lease() * 1_000 / BEATS_PER_LEASE))

    def _shortest_lease(self) -> float:
        """In seconds, of the leases that are held now."""
        with self._bench.changed:
            return min((held.lease_seconds for held in self._bench.leases.values()), default=60.0)

    def _take(self, turn: Turn) -> None:
        """Send a turn until it is answered, and do what the answer asks for."""
        try:
            sent_at, answer = self._sent(turn)
        finally:
            with self._bench.changed:
                self._under_way -= 1
                if not self._under_way:
                    self._waits = False
                self._bench.changed.notify_all()
        if answer is None:
            self._bench.not_sent(turn)
            return
        begun, missing = self._bench.take_in(turn, answer, sent_at)
        if answer.directive == "drain":
            self.asked_to_drain.set()
        for outgoing in missing:
            self._send_files(outgoing)
        for held in begun:
            if _is_whole(held.granted):
                self._fetch(held)
            else:  # A turn must not wait for it: the leases of all jobs depend on turns.
                with suppress(RuntimeError):  # The worker ends: its leases are given up.
                    self._fetchers.submit(self._fetch_beside, held)

    def _sent(self, turn: Turn) -> tuple[float, Answer | None]:
        """The answer to a turn, and when it was first sent; None when it is not to be sent any more.

        A later try may get the answer to the first one: what that says is as old.
        """
        body, pause = turn.encode(), PAUSE_SECONDS
        sent_at = time.monotonic()
        while not self._stopping.is_set():
            try:
                answer = read_answer(self._requests.turn(body, turn.wait_ms / 1_000 + ANSWER_SECONDS))
                if answer.turn != turn.turn:
                    raise AnswerInvalid(f"turn {turn.turn} was answered with the answer to turn {answer.turn}")
            except DetentError as exc:
                if exc.code == "TURN_STALE":
                    self._bench.renumber(told_number(exc, "turn") or turn.turn)
                    return sent_at, None
                if exc.code == "PROTOCOL_UNSUPPORTED" and self._bench.speak_older():
                    body = replace(turn, protocol=self._bench.protocol).encode()
                    continue
                if exc.code in FINAL or not _may_pass(exc):
                    raise
                self._away(exc)
                self._stopping.wait(pause * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret
                pause = min(PAUSE_SECONDS_MAX, pause * 2, self._shortest_lease() / TRIES_PER_LEASE)
                continue
            self._back()
            return sent_at, answer
        return 0.0, None

    # -- content -------------------------------------------------------------------------------------------------------

    def _send_files(self, outgoing: Outgoing) -> None:
        """Send what a report names, then bring the report again."""
        try:
            for digest in outgoing.files:
                self._again(lambda: self._requests.send(digest, outgoing.lease_id, self._files))  # noqa: B023
        except DetentError as exc:
            if exc.code != "NOT_FOUND":
                raise
            with self._bench.changed:  # The lease is gone, and with it the report.
                self._bench.outbox.done([outgoing.lease_id])
            self._bench.revoke([outgoing.lease_id])
            return
        with self._bench.changed:
            self._bench.outbox.back([outgoing.lease_id])
            self._bench.changed.notify_all()

    def _fetch_beside(self, held: Held) -> None:
        try:
            self._fetch(held)
        except DetentError as exc:
            self._judge(exc)
        except BaseException as exc:  # noqa: BLE001 - the worker ends, and says why
            self._fail(DetentError(f"a job's content could not be fetched: {exc!r}", code="INVARIANT_VIOLATION"))

    def _fetch(self, held: Held) -> None:
        """Fetch what an attempt needs, and let it begin."""
        granted, lease_id = held.granted, held.grant.lease_id

        def fetched(digest: bytes) -> Path:
            return self._again(lambda: self._requests.fetch(digest, lease_id, self._files))

        try:
            if granted.refusal is not None:
                self._bench.fetched(held, None, {}, None)
                return
            sealed = granted.order or fetched(held.grant.payload_digest).read_bytes()
            order = read_order(open_value(sealed))
            if (tree := tree_of(order.call.base)) is not None:
                self._fetch_tree(tree[0], fetched)
            values: dict[str, bytes | Path] = {}
            for name, data, digest in granted.values:
                values[name] = data or b"null" if digest is None else fetched(digest)
            for digest in granted.files:
                fetched(digest)
            earlier = None if granted.earlier is None else fetched(granted.earlier).read_bytes()
            code = self._bench.fetched(held, order, values, earlier)
            if code is not None:
                self._tell(f"gave job {held.grant.job_id} back: {registered(code).meaning} ({code})")
        except (DetentError, OSError, ValueError) as exc:
            if isinstance(exc, DetentError) and exc.code in FINAL:
                raise
            self._tell(f"job {held.grant.job_id} cannot begin here: {exc}")
            self._bench.give_back(held, "INTERRUPTED")

    def _fetch_tree(self, digest: bytes, fetched: Callable[[bytes], Path]) -> None:
        """Fetch the source tree of a job, and lay it out in a directory of its own; one that is there is used as it is."""
        if (self._work / TREES / digest.hex()).is_dir():
            return
        tree = read_tree(fetched(digest).read_bytes())
        for one in dict.fromkeys(file.digest for file in tree.files):
            fetched(one)
        lay_out_again(self._work, digest, self._files)

    def _again(self, ask: Callable[[], Path | None]) -> Path:
        """Ask until there is an answer."""
        pause = PAUSE_SECONDS
        while True:
            try:
                return ask() or Path()
            except DetentError as exc:
                if self._stopping.is_set() or not _may_pass(exc):
                    raise
            self._stopping.wait(pause)
            pause = min(PAUSE_SECONDS_MAX, pause * 2)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _fence(self) -> None:
        while not self._stopping.is_set():
            now = time.monotonic()
            self._stopping.wait(min(1.0, self._bench.fence(now) - now))

    def _follow(self) -> None:
        while not self._stopping.is_set():
            with self._bench.changed:
                if not self._bench.output.is_asked:
                    self._bench.changed.wait(1.0)
                    continue
            self._bench.follow_output()
            self._stopping.wait(OUTPUT_SECONDS)

    def _judge(self, exc: DetentError) -> None:
        if exc.code in FINAL or not _may_pass(exc):
            self._fail(exc)

    def _fail(self, exc: DetentError) -> None:
        with self._bench.changed:
            self.failure = exc
            leases = list(self._bench.leases)
            self._bench.changed.notify_all()
        self._bench.revoke(leases)

    def _away(self, exc: DetentError) -> None:
        if not self._is_away:
            self._is_away = True
            self._tell(f"{exc}; jobs go on, and results wait until it is back")

    def _back(self) -> None:
        if self._is_away:
            self._is_away = False
            self._tell("the server answers again")


def _is_whole(granted: Granted) -> bool:
    """Whether a grant brings everything that its attempt needs."""
    if granted.refusal is not None:
        return True
    if granted.order is None or granted.files or granted.earlier is not None or NAMED.encode() in granted.order:
        return False
    return all(digest is None for _, _, digest in granted.values)


def _may_pass(exc: DetentError) -> bool:
    """Whether the same request may be answered later."""
    return exc.retryable or exc.code in {"SERVER_UNREACHABLE", "CLOCK_SKEW", "ANSWER_INVALID"}
