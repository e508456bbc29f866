"""Owners of one ledger in PostgreSQL that are killed, stopped, cut off or out of room, cycle after cycle, with clocks a day apart.

Two processes, each with a home and keys of its own, want to own the ledger. The one that does submits and cancels jobs as fast as it can,
and first repeats what its predecessors have asked without learning the outcome. Every process writes down when it asked and when it was
answered, by the machine's monotonic clock. A cycle is one fault on the owner at work; it ends when the successor has committed.

In the end the history is checked without any help of the engine: what was acknowledged is on the ledger, once; a read sees
everything that was acknowledged before it began, nothing that was asked after it ended, and never less than an earlier read of the
same job. Then `verify` and `replay` say whether the ledger is whole.

`python -m tests.faults.owners --cycles 1000 --seed 1` is the long form, which `make soak` runs. Owners are forked from a process that has
loaded Detent, and leases are shorter than in earnest, so that a cycle takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from detent.errors import DetentError, StoreUnavailable
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import Cancel, Submit
from detent.kernel.table import State
from detent.ledger import sign_manifest
from detent.owner import ledgers
from detent.owner import owner as owner_module
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.ticks import SystemClock
from detent.owner.wiring import Parts, load_trust, signing_key
from tests.faults.disk import BALLAST, room_left, small_disk
from tests.kernel.builders import NO_PAYLOAD, TENANT, manifest
from tests.postgres_server import Server, given_to_server, own_server
from tests.warm import Warm

PARTITIONS: Final = 2
NAMES: Final = "ab"
DAY_MS: Final = 24 * 3600 * 1000
OFFSETS_MS: Final = (0, DAY_MS, -DAY_MS)
SILENT_MS: Final = 250
RENEW_SECONDS: Final = 0.05
"""In place of three seconds and half a second."""
ANSWER_SECONDS: Final = 120.0
"""How long a take-over may take on a machine that is busy with other things."""
WORK_BEFORE: Final = 4
"""Answers that an owner has had before the next fault."""
ROOM_BYTES: Final = 128 << 20
PAGE_BYTES: Final = 8192
ROOM: Final = "capacity_per_class = 100000\ncapacity_total = 100000"
SUBMITTED, CANCELED = 1, 2
"""How far a job has come; it never goes back."""


class Said(NamedTuple):
    """One line of what the owners wrote down."""

    kind: str
    """`asked` or `answered`."""
    job_id: str
    value: int
    at_ns: int
    pid: int


class Read(NamedTuple):
    """How far a job had come, as a reader saw it between two moments."""

    job_id: str
    value: int
    begun_ns: int
    ended_ns: int


def wrong_reads(said: Iterable[Said], reads: Iterable[Read]) -> list[str]:
    """What no order of the requests explains: jobs only ever get further, so each read has a least and a most."""
    asked: dict[tuple[str, int], int] = {}
    answered: dict[tuple[str, int], int] = {}
    for one in said:
        moments = asked if one.kind == "asked" else answered
        moments[one.job_id, one.value] = min(one.at_ns, moments.get((one.job_id, one.value), one.at_ns))
    wrong = []
    seen: dict[str, list[Read]] = defaultdict(list)
    for read in sorted(reads, key=lambda read: read.begun_ns):
        values = (SUBMITTED, CANCELED)
        least = max((v for v in values if answered.get((read.job_id, v), read.begun_ns) < read.begun_ns), default=0)
        most = max((v for v in values if asked.get((read.job_id, v), read.ended_ns) < read.ended_ns), default=0)
        earlier = max((one.value for one in seen[read.job_id] if one.ended_ns < read.begun_ns), default=0)
        if not max(least, earlier) <= read.value <= most:
            wrong.append(f"{read} is not between {least} (answered), {earlier} (read before) and {most} (asked)")
        seen[read.job_id].append(read)
    return wrong


@dataclass(slots=True)
class Told:
    """What came of a programme."""

    faults: Counter[str] = field(default_factory=Counter)
    take_overs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By fault: seconds until the successor had its first answer."""
    answered: int = 0
    unanswered: int = 0
    """Requests whose outcome an owner did not live to learn."""
    reads: int = 0
    epochs: int = 0


class Site:
    """A ledger with two homes, the processes that want to own it, and what they write down."""

    def __init__(self, directory: Path, postgres: Server, seed: int) -> None:
        self.directory, self.postgres = directory, postgres
        self.draw = random.Random(seed)
        self.log = directory / "said.txt"
        self.log.touch()
        self._make(postgres.store_url())
        self._host = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.owners", "--host", str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pids: dict[str, int] = {}
        self.reads: list[Read] = []
        self._read = 0
        self._said: list[Said] = []
        self._answers: dict[int, list[Said]] = defaultdict(list)
        self._left = ""
        self._ended = threading.Event()
        self._reading = threading.Thread(target=self._read_on, daemon=True)

    def _make(self, url: str) -> None:
        homes = {name: str(self.directory / name) for name in NAMES}
        made = self._detent("a", "init", "--home", homes["a"], "--store", url, "--partitions", str(PARTITIONS))
        joined = self._detent("b", "init", "--home", homes["b"], "--store", url, "--join", made["root"])
        self._detent("a", "keys", "admit", joined["join"], "--home", homes["a"])
        for name in NAMES:
            settings = Path(homes[name]) / "config.toml"
            settings.write_text(settings.read_text().replace("capacity_per_class = 256\ncapacity_total = 2560", ROOM))

    def _detent(self, name: str, *words: str) -> Any:
        process = Warm([*words, "-o", "json"], {**os.environ, **environment(self.directory, name)}, self.directory)
        out, err = process.communicate(ANSWER_SECONDS)
        assert process.returncode == 0, err
        return json.loads(out)

    def start(self, name: str) -> None:
        """Have a process want the ledger, with a clock of its own."""
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(f"{name} {self.draw.choice(OFFSETS_MS)}\n")
        self._host.stdin.flush()
        self.pids[name] = int(self._host.stdout.readline())

    def begin(self) -> None:
        """Start both, and read what they do."""
        for name in NAMES:
            self.start(name)
        self._reading.start()

    def said(self) -> list[Said]:
        """All that was written down until now."""
        with self.log.open() as log:
            log.seek(self._read)
            new = log.read()
            self._read = log.tell()
        *lines, self._left = (self._left + new).split("\n")
        for line in lines:
            kind, job_id, value, at_ns, pid = line.split()
            said = Said(kind, job_id, int(value), int(at_ns), int(pid))
            self._said.append(said)
            if kind == "answered":
                self._answers[said.pid].append(said)
        return self._said

    def answers_of(self, pid: int) -> list[Said]:
        """What a process has been answered until now."""
        self.said()
        return self._answers[pid]

    def at_work(self) -> str:
        """The owner, once it has done some work."""
        found: list[str] = []

        def works() -> bool:
            for name in NAMES:
                if not alive(self.pids[name]):
                    self.start(name)  # It lost the race to begin, or met what an earlier fault left.
            found[:] = [name for name in NAMES if len(self.answers_of(self.pids[name])) >= WORK_BEFORE]
            return bool(found)

        wait_until(works, "an owner is at work")
        return max(found, key=lambda name: self.answers_of(self.pids[name])[-1].at_ns)

    def followed(self, name: str, since_ns: int) -> float:
        """Wait until another process than the owner that met the fault has an answer; gives how long that took."""
        before = self.pids[name]

        def first() -> list[int]:
            for one in NAMES:
                if one != name and not alive(self.pids[one]):
                    self.start(one)
            others = [pid for pid in self.pids.values() if pid != before]
            return [one.at_ns for pid in others for one in self.answers_of(pid) if one.at_ns > since_ns][:1]

        wait_until(lambda: bool(first()), "the successor is answered")
        return (first()[0] - since_ns) / 1e9

    def _read_on(self) -> None:
        """Look at jobs of late, from outside, for as long as the programme runs."""
        draw, reader = random.Random(0), ledgers.open_ledger(Home(self.directory / "a").ledger)
        with closing(reader):
            while not self._ended.wait(0.05):
                for job_id in {one.job_id for one in draw.choices(self._said[-40:], k=3)} if self._said else ():
                    begun_ns = time.monotonic_ns()
                    with suppress(DetentError):
                        row = reader.job(job_id)
                        value = 0 if row is None else CANCELED if row.state == State.CANCELED else SUBMITTED
                        self.reads.append(Read(job_id, value, begun_ns, time.monotonic_ns()))

    def close(self) -> None:
        """End all processes."""
        self._ended.set()
        if self._reading.ident is not None:
            self._reading.join(ANSWER_SECONDS)
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._host.communicate()


# Faults: each happens to the owner at work, and returns when its successor is


def killed(site: Site, name: str) -> float:
    """Kill -9"""
    since_ns = time.monotonic_ns()
    os.kill(site.pids[name], signal.SIGKILL)
    seconds = site.followed(name, since_ns)
    site.start(name)
    return seconds


def stopped(site: Site, name: str) -> float:
    """SIGSTOP, and SIGCONT when another process owns the ledger: it writes nothing more, and ends."""
    pid, since_ns = site.pids[name], time.monotonic_ns()
    os.kill(pid, signal.SIGSTOP)
    seconds = site.followed(name, since_ns)
    awake_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not alive(pid), "a deposed owner ends")
    late = [one for one in site.answers_of(pid) if one.at_ns > awake_ns + SILENT_MS * 1_000_000]
    assert not late, f"a deposed owner was answered: {late}"
    site.start(name)
    return seconds


def cut_off(site: Site, name: str) -> float:
    """Its connections are ended by the database."""
    pid, since_ns = site.pids[name], time.monotonic_ns()
    site.postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2")
    wait_until(lambda: not alive(pid), "an owner without a connection ends")
    seconds = site.followed(name, since_ns)
    if not alive(site.pids[name]):
        site.start(name)
    return seconds


def out_of_room(site: Site, name: str) -> float:
    """The file system of its tables is full, until no owner can write; then there is room again."""
    disk = Path(str(site.postgres.directory)) / "small"
    pid = site.pids[name]
    take_all_room(disk)
    try:
        wait_until(lambda: not alive(pid), "an owner that cannot write ends")
    finally:
        (disk / BALLAST).unlink()
    since_ns = time.monotonic_ns()
    seconds = site.followed(name, since_ns)
    if not alive(site.pids[name]):
        site.start(name)
    return seconds


def take_all_room(disk: Path) -> None:
    """Leave less than a page of a table, while the owner writes."""
    with (disk / BALLAST).open("wb") as ballast:
        while (left := room_left(disk)) >= PAGE_BYTES:
            size = ballast.seek(0, os.SEEK_END)
            try:
                os.posix_fallocate(ballast.fileno(), size, left)
            except OSError:
                with suppress(OSError):
                    os.posix_fallocate(ballast.fileno(), size, PAGE_BYTES)


FAULTS: Final[dict[str, Callable[[Site, str], float]]] = {
    "killed": killed,
    "stopped": stopped,
    "cut off": cut_off,
    "out of room": out_of_room,
}


def programme(directory: Path, cycles: int, seed: int, *, say: Callable[[str], None] = lambda _: None) -> Told:
    """Run so many faults and check what is left; raises `AssertionError` for anything that is wrong."""
    told = Told()
    with database() as (postgres, names):
        site = Site(directory, postgres, seed)
        try:
            site.begin()
            for cycle in range(cycles):
                fault = names[cycle % len(names)]
                told.take_overs[fault].append(FAULTS[fault](site, site.at_work()))
                told.faults[fault] += 1
                if (cycle + 1) % 50 == 0:
                    say(f"{cycle + 1} faults, {len(site.said())} lines")
        finally:
            site.close()
        check(site, told)
    return told


def check(site: Site, told: Told) -> None:
    """Compare what was said with what is on the ledger."""
    said, home = site.said(), Home(site.directory / "a")
    asked = {(one.job_id, one.value) for one in said if one.kind == "asked"}
    answered = {(one.job_id, one.value) for one in said if one.kind == "answered"}
    told.answered, told.unanswered, told.reads = len(answered), len(asked - answered), len(site.reads)
    wrong = wrong_reads(said, site.reads)
    assert not wrong, f"{len(wrong)} of {len(site.reads)} reads: {wrong[:3]}"
    with closing(ledgers.open_ledger(home.ledger)) as reader:
        submitted: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            epochs = [batch.epoch for batch in reader.batches(partition)]
            assert epochs == sorted(epochs), "an epoch went back"
            told.epochs = max(told.epochs, epochs[-1])
            submitted.update(
                record.job_id for record in reader.records(partition) if record.kind == "submitted" and record.job_id
            )
        states = {row.job_id: row.state for row in reader.jobs()}
    assert set(submitted.values()) == {1}, [name for name, count in submitted.items() if count > 1][:5]
    assert submitted.keys() == states.keys()
    assert {(name, SUBMITTED) for name in submitted} <= asked
    for name, value in answered:
        assert value == SUBMITTED or states[name] == State.CANCELED, f"{name} was cancelled and is {states[name]}"
    assert {name for name, _ in answered} <= submitted.keys(), "an answer is not on the ledger"
    assert verify_home(home, environment={**os.environ, **environment(site.directory, "a")}).findings == ()
    assert replay_home(home).ok


@contextmanager
def database() -> Iterator[tuple[Server, list[str]]]:
    """A server of its own whose tables are on a small file system, where one can be mounted, and the faults that it can have."""
    names = [*FAULTS]
    with ExitStack() as stack:
        postgres = stack.enter_context(own_server())
        try:
            disk = stack.enter_context(small_disk(Path(str(postgres.directory)) / "small", ROOM_BYTES))
        except OSError:
            names.remove("out of room")
        else:
            given_to_server(disk)
            postgres.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            postgres.execute("ALTER DATABASE postgres SET default_tablespace = small")
        yield postgres, names


def environment(directory: Path, name: str) -> dict[str, str]:
    """What a machine has for itself."""
    return {"XDG_STATE_HOME": str(directory / f"state-{name}")}


def alive(pid: int) -> bool:
    """Whether a process is there; those of the host are reaped at once."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + ANSWER_SECONDS, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        pause.wait(0.02)


# The processes that own


class Shifted(SystemClock):
    """A clock that is wrong."""

    def __init__(self, offset_ms: int) -> None:
        self._offset_ms = offset_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._offset_ms


def host(directory: Path) -> None:
    """Fork an owner for each line that says which; ends with its input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ledgers.SILENT_MS = SILENT_MS  # type: ignore[misc]
    owner_module.RENEW_SECONDS = RENEW_SECONDS  # type: ignore[attr-defined]
    for line in sys.stdin:
        name, offset_ms = line.split()
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                work(directory, name, int(offset_ms))
            finally:
                os._exit(4)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


def work(directory: Path, name: str, offset_ms: int) -> None:
    """Own the ledger as soon as that is possible, and submit and cancel jobs until something ends it."""
    home, log = Home(directory / name), os.open(directory / "said.txt", os.O_WRONLY | os.O_APPEND)
    parts = Parts(clock=Shifted(offset_ms), stand_by=lambda _: time.sleep(0.05))
    while True:
        try:
            session = Session(
                home, parts, environment=environment(directory, name), listen=False, on_failed=lambda _: os._exit(4)
            )
            break
        except StoreUnavailable:
            time.sleep(0.01)  # The database is on its way back, or has no room yet.
    with parts.open_reader(home.ledger) as reader:
        trust = load_trust(reader, home.settings())
        key = signing_key(home, trust, "manifest", reader.head(0).size)

    def say(kind: str, job_id: str, value: int) -> None:
        os.write(log, f"{kind} {job_id} {value} {time.monotonic_ns()} {os.getpid()}\n".encode())

    def ask(job_id: str, value: int) -> None:
        say("asked", job_id, value)
        if value == SUBMITTED:
            made = manifest(job_id, payload_digest=NO_PAYLOAD, origin=trust.origin)
            (answer,) = session.ask([Submit(0, sign_manifest(made, key))])
        else:
            (answer,) = session.ask([Cancel(0, TENANT, job_id)])
        assert answer.ok, answer.refusal
        say("answered", job_id, value)

    try:
        for job_id, value in unanswered((directory / "said.txt").read_text()):
            ask(job_id, value)
        for number in range(1_000_000):
            job_id = f"job-{os.getpid()}-{number}"
            ask(job_id, SUBMITTED)
            if number % 10:
                ask(job_id, CANCELED)
    except BaseException as exc:
        sys.stderr.write("" if isinstance(exc, DetentError) else f"{exc!r}\n")
        raise


def unanswered(text: str) -> list[tuple[str, int]]:
    """What was asked and not answered, in order; a line that is not whole yet is not there."""
    asked: dict[tuple[str, int], None] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5:
            one = (words[1], int(words[2]))
            if words[0] == "asked":
                asked[one] = None
            else:
                asked.pop(one, None)
    return [*asked]


def main() -> None:
    """Run the programme."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--cycles", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--host", type=Path)
    said = arguments.parse_args()
    if said.host is not None:
        host(said.host)
        return
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="detent-owners-") as directory:
        told = programme(Path(directory), said.cycles, said.seed, say=click.echo)
    for fault, seconds in told.take_overs.items():
        click.echo(
            f"{fault}: {len(seconds)} times, followed after {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s"
        )
    click.echo(
        f"{said.cycles} faults in {time.monotonic() - begun:.0f} s: {told.answered} requests answered,"
        f" {told.unanswered} without an answer, {told.reads} reads, epoch {told.epochs}; the history is whole"
    )


if __name__ == "__main__":
    main()
