"""Ranking runs by a tuple of metrics: smaller is better, earlier metrics decide first (PIPE-006 to PIPE-009).

The quantity that the contract minimises is the number of ambiguous transitions, i.e. of requests that were refused or in
conflict; it is the whole tuple unless another one is asked for. ``result:STEP.KEY`` is a number that a step returned, such as
a loss. Values in one bucket of width `EPS_EQ` tie. A metric that a run does not have is not a number, and what is not finite
ranks last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from detent.canon import approx_equal, compare, json_decode_trusted, rank_key
from detent.canon.late import dataclass
from detent.canon.numbers import Number, RankKey
from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.replay import replay_reader
from detent.inspect.trace import read_trace
from detent.inspect.trace_lines import COMMIT, HEADER, ITER
from detent.kernel import Kernel, Outcome, Run
from detent.kernel.history import RUN_ENDED
from detent.kernel.outcome import COMMITTED, DEDUPLICATED
from detent.kernel.records import SUBMITTED
from detent.kernel.table import TERMINAL, State
from detent.owner.content import Content
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.runs.find_jobs import the_run
from detent.runs.record.recorded_run import RecordedRun, recorded_run, report_of, value_of
from detent.store.api import StoreReader

RUNS_MAX: Final = 1_000
"""Runs that are ranked at once."""


@dataclass(slots=True)
class Tally:
    """What the events of one run add up to."""

    what: str
    """The run, or the file of its trace."""
    run_id: str | None = None
    tick_ms: int = 1
    ambiguous: int = 0
    retries: int = 0
    ended_jobs: int = 0
    failed_jobs: int = 0
    first_tick: int | None = None
    last_tick: int = 0
    ended: bool = False
    """Whether the run has ended."""
    results: dict[str, Number] = field(default_factory=dict)
    """The numbers that were asked for of what its steps returned."""

    def take(self, status: str, to_state: str, tick: int) -> None:
        """Count one event."""
        self.first_tick = tick if self.first_tick is None else self.first_tick
        self.last_tick = tick
        if status not in {COMMITTED, DEDUPLICATED}:
            self.ambiguous += 1
        if status != COMMITTED:
            return
        self.retries += to_state == State.RETRYING
        self.ended_jobs += to_state in TERMINAL
        self.failed_jobs += to_state in {State.FAILED, State.CANCELED}

    def duration_ms(self) -> Number:
        """From the first event to the last; infinite while the run has not ended."""
        if not self.ended:
            return math.inf
        return 0 if self.first_tick is None else (self.last_tick - self.first_tick) * self.tick_ms

    def job_failure_rate(self) -> Number:
        """Failed and cancelled jobs among those that ended; not a number while none has."""
        return self.failed_jobs / self.ended_jobs if self.ended_jobs else math.nan


METRICS: Final[Mapping[str, Callable[[Tally], Number]]] = {
    "ambiguous_transitions": lambda tally: tally.ambiguous,
    "job_failure_rate": Tally.job_failure_rate,
    "retries": lambda tally: tally.retries,
    "duration_ms": Tally.duration_ms,
}
DEFAULT_METRICS: Final = ("ambiguous_transitions",)
RESULT: Final = "result:"
"""How a metric begins that a step returned."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A run and its rank, counted from 1; runs that tie share one."""

    rank: int
    tally: Tally
    values: tuple[Number, ...]
    close_to_previous: bool = False
    """Whether every value is within `EPS_EQ` of the one ranked before it, on the other side of a bucket's edge."""


def rank(tallies: Iterable[Tally], metrics: Sequence[str]) -> list[Ranked]:
    """Sort runs by the metrics; those that tie stay in the order in which they were given."""
    rows: list[tuple[RankKey, Tally, tuple[Number, ...]]] = []
    for tally in tallies:
        values = tuple(_value(tally, name) for name in metrics)
        rows.append((rank_key(values), tally, values))
    rows.sort(key=lambda row: row[0])
    ranked: list[Ranked] = []
    for place, (_, tally, values) in enumerate(rows):
        tied = place > 0 and compare(rows[place - 1][2], values) == 0
        close = place > 0 and not tied and _close(rows[place - 1][2], values)
        ranked.append(Ranked(ranked[-1].rank if tied else place + 1, tally, values, close))
    return ranked


def check_metrics(names: Sequence[str]) -> None:
    """Refuse a metric that runs do not have, or the same one twice."""
    unknown = [name for name in names if name not in METRICS and not (name.startswith(RESULT) and name != RESULT)]
    if unknown or len(set(names)) != len(names) or not names:
        what = f"there is no metric {unknown[0]!r}" if unknown else "give each metric once"
        raise InvalidInput(what, hint=f"the metrics are {', '.join(METRICS)}, and result:STEP.KEY")


def tally_all(names: Sequence[str], metrics: Sequence[str], find_home: Callable[[], Home]) -> list[Tally]:
    """The tallies of runs and of traces of runs, in the order given; a name that is a file is a trace."""
    results = [name for name in metrics if name.startswith(RESULT)]
    if len(names) > RUNS_MAX:
        raise InvalidInput(f"{len(names):,} runs, {RUNS_MAX:,} can be ranked at once")
    files = {name: Path(name) for name in names if Path(name).is_file()}
    runs = [name for name in names if name not in files]
    if files and results:
        raise InvalidInput(
            f"{next(iter(files))} is a trace, which holds no results: {results[0]} cannot be read from it",
            hint="name the run instead",
        )
    of_runs = _of_runs(find_home(), runs, results) if runs else {}
    return [_of_trace(files[name]) if name in files else of_runs[name] for name in names]


def _value(tally: Tally, metric: str) -> Number:
    return METRICS[metric](tally) if metric in METRICS else tally.results.get(metric, math.nan)


def _close(left: Sequence[Number], right: Sequence[Number]) -> bool:
    return all(
        math.isfinite(one) and math.isfinite(other) and approx_equal(one, other)
        for one, other in zip(left, right, strict=True)
    )


def _of_trace(path: Path) -> Tally:
    tally = Tally(str(path))
    for line in read_trace(path):
        if line["kind"] == HEADER:
            tally.run_id, tally.tick_ms = line["run_id"], line["tick_ms"]
            if tally.run_id is None:
                raise InvalidInput(
                    f"{path} is the trace of a whole ledger, not of one run", hint="write one with `detent trace RUN`"
                )
        elif line["kind"] == ITER:
            tally.take(line["status"], line["to_state"], line["tick"])
        elif line["kind"] == COMMIT:
            tally.ended = True
    return tally


def _of_runs(home: Home, names: Sequence[str], results: Sequence[str]) -> dict[str, Tally]:
    """One replay gives the events of all the runs that are asked for."""
    parts = Parts()
    with parts.open_snapshot(home.ledger) as reader:
        meant = {name: the_run(reader, name).run_id for name in names}
        watch = _Watch({run_id: Tally(run_id, run_id) for run_id in meant.values()})
        report = replay_reader(reader, parts.make_queue, watch.after_command)
        if not report.ok:
            raise StoreCorrupt(
                "the ledger is not what its commands lead to, so its runs cannot be ranked",
                hint="`detent replay` lists the differences",
            )
        content = Content(reader, home.content_files())
        for run_id, tally in watch.tallies.items() if results else ():
            row = reader.run(run_id)
            recorded = None if row is None else recorded_run(reader, content, Run.decode(row.body))
            if recorded is not None:
                found = {metric: _result(reader, content, recorded, metric.removeprefix(RESULT)) for metric in results}
                tally.results.update(found)
        return {name: watch.tallies[run_id] for name, run_id in meant.items()}


def _result(reader: StoreReader, content: Content, recorded: RecordedRun, path: str) -> Number:
    """The number at a path: a step, then keys of the object that it returned. Not a number where there is none."""
    words = path.split(".")
    for size in range(len(words), 0, -1):
        step = recorded.step(".".join(words[:size]))
        row = None if step is None or step.mapped or not step.elements else step.elements[0].row
        report = None if row is None else report_of(reader, content, row)
        data = None if report is None or not report.ok else value_of(content, report)
        if data is not None:
            value = json_decode_trusted(data)
            for key in words[size:]:
                value = value.get(key) if isinstance(value, dict) else None
            return value if type(value) in {int, float} else math.nan
    return math.nan


@dataclass(slots=True)
class _Watch:
    tallies: dict[str, Tally]
    jobs: dict[str, Tally] = field(default_factory=dict)

    def after_command(self, partition: int, kernel: Kernel, outcome: Outcome) -> None:  # noqa: ARG002 - the tally is the same everywhere
        """Count what a command has led to."""
        for record in outcome.records:
            tally = self.tallies.get(record.run_id or "")
            if tally is not None and record.kind == SUBMITTED and record.job_id is not None:
                self.jobs[record.job_id] = tally
            elif tally is not None and record.kind == RUN_ENDED:
                tally.ended, tally.tick_ms = True, kernel.config.tick_ms
        for event in outcome.events:
            if (tally := self.jobs.get(event.job_id)) is not None:
                tally.take(event.status, event.to_state, event.tick)
