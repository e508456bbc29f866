"""The lifecycle of five jobs on a new ledger, then the proof.

Jobs are submitted, leased, lost, retried, cancelled and finished. The clock is a fake one that jumps, so half a minute of
leases takes no time. Afterwards the ledger is exported, verified, and verified again with one byte changed.

    python examples/lifecycle.py [DIRECTORY]        default: examples/out, replaced each time
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import detent
from detent.canon import digest_text, json_digest, json_encode
from detent.cli.page import Page
from detent.inspect.export import Exported, export
from detent.jobs.work import Result, WorkReport
from detent.kernel import Cancel, Claim, Command, EndRun, Finish, Grant, Heartbeat, Manifest, StartRun, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest, sign_result
from detent.owner.content import Content, seal_value
from detent.owner.home import Home, make_home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, begin_ledger, load_trust, signing_key
from detent.pages.sheet import Cell, state_cell
from detent.pages.text import BAD, FAINT, GOOD, STRONG
from detent.testing import FakeClock
from detent.words.states import word_of

TENANT, RUN = "demo", "run-1"
JOBS = ("resize", "prices", "model", "report", "mail")
STEP_MS = 5_000
"""Time passes in steps below a third of a lease: a longer gap would look as if the machine had been asleep."""

Staged = tuple[tuple[bytes, bytes], ...]


class Stage:
    """An open home: a session, a clock to move, and a printed line for each moment."""

    def __init__(self, home: Home, session: Session, clock: FakeClock, page: Page) -> None:
        self.home, self.session, self.clock, self.page = home, session, clock, page
        self.began_ms = clock.wall_ms()
        with Parts().open_reader(home.ledger) as reader:
            trust = load_trust(reader, home.settings())
        self.origin = trust.origin
        self.manifest_key = signing_key(home, trust, "manifest", 1)
        self.result_key = signing_key(home, trust, "result", 1)

    def ask(self, command: Command, content: Staged = ()) -> Answer:
        """Submit one command and return the answer, which comes only after the decision is durable."""
        (answer,) = self.session.ask([command], content=content)
        if answer.refusal is not None:
            raise SystemExit(f"refused: {answer.refusal.message}")
        return answer

    def submit(self, job_id: str) -> None:
        """Sign a job's manifest for this ledger, and submit it together with its payload."""
        payload = self.content(seal_value({"task": job_id}, secrets.token_bytes(16)))
        quota = UNLIMITED_QUOTA.hash()
        manifest = Manifest(TENANT, job_id, "task", payload[0][0], 5, quota, 0, max_retries=1, origin=self.origin)
        self.ask(Submit(0, sign_manifest(manifest, self.manifest_key), RUN), payload)

    def claim(self, worker: str, limit: int = 1) -> tuple[Grant, ...]:
        """Lease the next jobs to a worker."""
        return self.ask(Claim(0, worker, limit)).grants

    def succeed(self, grant: Grant, value: object) -> None:
        """Report a result that the executor has signed."""
        report = WorkReport(
            job_id=grant.job_id,
            attempt_id=grant.attempt_id,
            lease_id=grant.lease_id,
            manifest_hash=grant.job_manifest_hash,
            nonce=secrets.token_bytes(16),
            result=Result(status="SUCCEEDED", value=(data := json_encode(value))),
            value_digest=json_digest(data),
        )
        signed = sign_result(report.body(), self.result_key)
        content = self.content(signed.envelope())
        self.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=content[0][0]), content)

    def fail(self, grant: Grant, reason_code: str, category: str) -> None:
        """Report that an attempt failed; the category decides whether it is retried."""
        self.ask(Finish(0, grant.job_id, grant.lease_id, ok=False, reason_code=reason_code, category=category))

    def content(self, data: bytes) -> Staged:
        """Bytes that are small enough to be stored in the commit of the record that names them."""
        with Parts().open_reader(self.home.ledger) as reader:
            return Content(reader, self.home.content_files()).stage(data).inline

    def wait(self, seconds: int, *working: Grant) -> None:
        """Let time pass; workers that are alive send heartbeats meanwhile."""
        for _ in range(0, 1000 * seconds, STEP_MS):
            self.clock.jump(min(STEP_MS, 1000 * seconds))
            self.session.ask([Heartbeat(0, grant.job_id, grant.lease_id) for grant in working])

    def show(self, what: str) -> None:
        """Print one line: the time, what happened, and the current state of every job."""
        seconds = (self.clock.wall_ms() - self.began_ms) // 1000
        with Parts().open_reader(self.home.ledger) as reader:
            states = [word_of(row.state) if (row := reader.job(job_id)) is not None else "" for job_id in JOBS]
        padded = [state.ljust(10) for state in states[:-1]] + states[-1:]
        cells = [Cell(text, state_cell(state).style) for text, state in zip(padded, states, strict=True)]
        self.page.line(Cell(f"{seconds // 60}:{seconds % 60:02d}  ", FAINT), what.ljust(25), *cells)


def play(stage: Stage) -> None:
    """Five jobs, four ways to end."""
    stage.page.line(Cell(" " * 31 + "".join(job_id.ljust(10) for job_id in JOBS).rstrip(), STRONG))
    stage.ask(StartRun(0, TENANT, RUN, "five jobs", bytes(32), bytes(32), bytes(32), "op-1"))
    for job_id in JOBS:
        stage.submit(job_id)
    stage.show("submitted, signed")
    resize, prices = stage.claim("worker-a", 2)
    (model,) = stage.claim("worker-b")
    stage.show("two workers take three")
    stage.wait(5, resize, prices)
    stage.ask(Cancel(0, TENANT, "mail"))
    stage.show("mail is cancelled")
    stage.succeed(resize, {"width": 640})
    stage.fail(prices, "BAD_INPUT", "VALIDATION_ERROR")
    stage.show("one done, one hopeless")
    (report,) = stage.claim("worker-a")
    stage.fail(report, "CONNECTION_RESET", "INTERNAL_ERROR")
    stage.show("report fails, may retry")
    stage.wait(5)
    stage.show("its wait is over")
    (report,) = stage.claim("worker-a")
    stage.wait(20, report)
    stage.show("worker-b silent: expired")
    stage.wait(5, report)
    (model,) = stage.claim("worker-a")
    stage.show("model gets another lease")
    stage.succeed(report, {"pages": 12})
    stage.succeed(model, {"loss": 0.25})
    stage.ask(EndRun(0, RUN, "failed"))
    stage.show("the run ends")


def prove(page: Page, exported: Exported) -> None:
    """Check the bundle as an outsider would: with only the file and the root digest."""
    report = detent.verify(exported.path, root=digest_text(exported.root))
    if not report.ok:
        raise SystemExit(f"a true bundle does not verify: {report.findings[0]}")
    page.line(Cell("verified", GOOD), ", which proves:")
    for sentence in report.proved:
        page.hanging([Cell("  + ", GOOD)], sentence)
    page.line(
        Cell(f"  and says {len(report.not_proved)} things that it does not prove; `detent verify` lists them", FAINT)
    )


def tamper(page: Page, home: Home, exported: Exported) -> None:
    """Change one byte of one record in a copy of the bundle, and see that it is found."""
    with Parts().open_reader(home.ledger) as reader:
        record = reader.transition("model", 1)
    assert record is not None
    data = bytearray(exported.path.read_bytes())
    place = data.index(record.body) + record.body.index(b"LEASE_EXPIRED")
    data[place] ^= 1
    forged = exported.path.with_name("forged.detent")
    forged.write_bytes(data)
    report = detent.verify(forged, root=digest_text(exported.root))
    page.line(f"byte {place} of a copy changed, in record {record.position} (job model): ", Cell("found", BAD))
    for finding in report.findings:
        page.hanging([Cell("  ! ", BAD)], str(finding))
    if report.ok:
        raise SystemExit("a forged bundle verifies")


def main() -> None:
    """Create the home, run the jobs, verify the history, and keep everything for inspection."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends this quietly.
    out = Path(__file__).resolve().parent / "out"
    if len(sys.argv) > 1:
        out = Path(sys.argv[1])
        if out.exists():
            raise SystemExit(f"{out} is there already; name a directory that is not")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    page = Page()
    clock = FakeClock(time.time_ns() // 1_000_000 - 60_000)
    home = make_home(out.resolve() / ".detent", partial(begin_ledger, parts=Parts(clock=clock)))
    environment = {"XDG_STATE_HOME": str(out.resolve() / "state")}
    page.line(Cell("Five jobs on a new ledger", STRONG), f" in {_shown(home.path)}")
    page.line()
    with Session(home, Parts(clock=clock), environment=environment) as session:
        play(Stage(home, session, clock, page))
    page.line()
    exported = export(home, out / "run.detent", environment=environment, with_content=True)
    page.line(Cell("exported", GOOD), f" to {_shown(exported.path)}, {exported.size_bytes:,} bytes")
    prove(page, exported)
    page.line()
    tamper(page, home, exported)
    page.line()
    page.line(Cell("Now you:", STRONG))
    command, place = _command(), _shown(home.path)
    for arguments in (
        f"list --home {place}",
        f"show model --home {place}",
        f"verify {_shown(out / 'forged.detent')}",
        "--help",
    ):
        page.line(f"  {command} {arguments}")


def _shown(path: Path) -> str:
    """A path relative to the current directory."""
    absolute = path.resolve()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def _command() -> str:
    script = Path(sys.executable).with_name("detent")
    return _shown(script.parent) + "/detent" if script.exists() else f"{Path(sys.executable).name} -m detent"


if __name__ == "__main__":
    try:
        main()
    except detent.DetentError as exc:
        sys.exit(f"error: {exc}\nhint:  {exc.hint}")
