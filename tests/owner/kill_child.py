"""The program that the tests kill, and talk to, in another process.

``talk HOME STATE``: opens a session, says whether it owns the home, then answers one line of JSON for each line it reads.

``work``: for each line of JSON on its input, forks a child that opens a session on a home and works at random from a
seed until it is killed, by itself at a named point or by the reader of its output. A fork for each cycle saves
starting Python thirty times; each child is a process of its own, and SIGKILL ends it as it ends any other.

Before a request is sent its commands are printed as ``try``, and after the answer as ``ack``: what was printed as ``ack``
was acknowledged, whatever comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detent.canon import SigningKey, sha256
from detent.errors import DetentError
from detent.kernel import Cancel, Claim, Command, Finish, Grant, Heartbeat, Manifest, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, load_trust, signing_key
from detent.store.sqlite import SqliteStore

TENANT = "tenant-a"


Submitter = tuple[SigningKey, str]


def submitter(home: Home) -> Submitter:
    """The key that submits to a home, and the ledger it signs for."""
    reader = SqliteStore.open_reader(home.ledger_file)
    try:
        trust = load_trust(reader, home.settings())
        return signing_key(home, trust, "manifest", 1), trust.origin
    finally:
        reader.close()


def submission(by: Submitter, job_id: str, priority: int = 5) -> Submit:
    """Submit an ordinary job that may fail often."""
    digest, quota = bytes(32), UNLIMITED_QUOTA.hash()
    manifest = Manifest(TENANT, job_id, "task", digest, priority, quota, 0, max_retries=1_000, origin=by[1])
    return Submit(0, sign_manifest(manifest, by[0]))


def say(**fields: Any) -> None:
    """Print one line, at once."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def told(command: Command, answer: Answer) -> dict[str, Any]:
    """An answer as the reader checks it against the ledger."""
    job = answer.job
    return {
        "command": type(command).__name__,
        "job": job_of(command),
        "status": answer.status,
        "refusal": None if answer.refusal is None else answer.refusal.code,
        "state": None if job is None else job.state,
        "seq": None if job is None else job.transition_seq,
        "record": None if answer.record is None else sha256(answer.record).hex(),
        "grants": [[grant.job_id, grant.transition_seq, grant.lease_id.hex()] for grant in answer.grants],
    }


def job_of(command: Command) -> str | None:
    """The job a command is about."""
    if isinstance(command, Submit):
        return command.manifest.job_id
    return getattr(command, "job_id", None)


# -- talking -----------------------------------------------------------------------------------------------------------


def talk(home: Home, state: str) -> None:
    """Do what each line says, until there is none."""
    session = Session(home, environment={"XDG_STATE_HOME": state})
    by = submitter(home)
    leases: dict[str, Grant] = {}
    say(owns=session.owns, epoch=session.owned.owners[0].epoch if session.owned else None)
    for line in sys.stdin:
        words = json.loads(line)
        if words[0] == "owns":
            say(owns=session.owns, epoch=session.owned.owners[0].epoch if session.owned else None)
            continue
        if words[0] == "close":
            session.close()
            say(closed=True)
            continue
        if words[0] == "fork":
            say(forked=fork_idle())
            continue
        if words[0] == "fork and use":
            use_in_child(session, submission(by, "job-of-the-child"))
            continue
        commands: dict[str, Callable[[], Command]] = {
            "submit": lambda: submission(by, words[1]),  # noqa: B023 - called in this round
            "cancel": lambda: Cancel(0, TENANT, words[1]),  # noqa: B023
            "claim": lambda: Claim(0, words[1]),  # noqa: B023
            "finish": lambda: Finish(0, words[1], leases[words[1]].lease_id),  # noqa: B023
        }
        command = commands[words[0]]()
        try:
            (answer,) = session.ask([command])
        except DetentError as exc:
            say(error=exc.code)
            continue
        leases.update({grant.job_id: grant for grant in answer.grants})
        say(ack=told(command, answer))


def fork_idle() -> int:
    """A child that does nothing but hold what it inherited, until it is killed."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def use_in_child(session: Session, command: Command) -> None:
    """A child that uses what it inherited as if it were its own, and ends as Python ends; the parent waits for that."""
    pid = os.fork()
    if pid == 0:
        with session:
            try:
                session.ask([command])
                say(child="answered")
            except DetentError as exc:
                say(child=exc.code)
        sys.exit(0)
    os.waitpid(pid, 0)


# -- working -----------------------------------------------------------------------------------------------------------


class Work:
    """A life at random: submits, claims, finishes, cancels, repeats, and asks for what must be refused."""

    def __init__(self, session: Session, by: Submitter, seed: int) -> None:
        self.session = session
        self.by = by
        self.random = random.Random(seed)
        self.seed = seed
        self.number = 0
        self.jobs: list[str] = []
        self.grants: list[Grant] = []
        self.asked: list[list[Command]] = []

    def run(self) -> None:
        """Work until something ends this process."""
        while True:
            commands = self.choose()
            self.asked.append(commands)
            say(**{"try": [[type(command).__name__, job_of(command)] for command in commands]})
            answers = self.session.ask(commands)
            say(ack=[told(command, answer) for command, answer in zip(commands, answers, strict=True)])
            for answer in answers:
                self.grants += answer.grants

    def choose(self) -> list[Command]:
        """The next request."""
        draw = self.random.random()
        if draw < 0.3 or not self.jobs:
            return [submission(self.by, self.new_job()) for _ in range(self.random.randint(1, 3))]
        if draw < 0.5:
            return [Claim(0, f"worker-{self.seed}", self.random.randint(1, 3))]
        if draw < 0.8 and self.grants:
            grant = self.grants.pop(self.random.randrange(len(self.grants)))
            if self.random.random() < 0.3:
                self.grants.append(grant)
                return [Heartbeat(0, grant.job_id, grant.lease_id)]
            ok = self.random.random() < 0.8
            fields: dict[str, Any] = {} if ok else {"ok": False, "reason_code": "FAILED", "category": "INTERNAL_ERROR"}
            return [Finish(0, grant.job_id, grant.lease_id, **fields)]
        if draw < 0.88:
            return [Cancel(0, TENANT, self.random.choice(self.jobs))]
        if draw < 0.94:
            return [Cancel(0, TENANT, f"ghost-{self.seed}-{self.number}")]
        return self.random.choice(self.asked)

    def new_job(self) -> str:
        """An unused id."""
        self.number += 1
        self.jobs.append(f"job-{self.seed}-{self.number}")
        return self.jobs[-1]


def crash_at(point: str | None, times: int) -> Callable[[str], None]:
    """Kill this process at the n-th passing of a point."""
    left = times

    def crash(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return crash


def work_once(task: dict[str, Any]) -> None:
    """Open the home and work on it."""
    home = Home(Path(task["home"]))
    parts = Parts(crash_point=crash_at(task.get("point"), task.get("times", 1)), checkpoint_records=task["checkpoint"])
    session = Session(home, parts, environment={"XDG_STATE_HOME": task["state"]})
    say(opened=session.owns)
    Work(session, submitter(home), task["seed"]).run()


def work() -> None:
    """Fork a worker for each line."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BrokenPipeError):
                say(pid=os.getpid())
                work_once(json.loads(line))
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        say(ended=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if sys.argv[1] == "talk":
        talk(Home(Path(sys.argv[2])), sys.argv[3])
    else:
        work()
