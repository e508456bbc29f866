"""Why work was done although it had been done before, or why an earlier result was good enough.

A job's order names everything that its key was made of, so the question is answered by laying two orders side by side: that
of the job, and that of the job which did the work of the same name before. Nothing is computed anew and no code is looked
at, except to say which part of it cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from detent.canon import parse_digest
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import DetentError, InvalidInput
from detent.inspect.explain_words import moment
from detent.jobs.elements import element_id
from detent.jobs.order import Call, Order
from detent.jobs.values import restored
from detent.kernel import Job
from detent.kernel.table import State
from detent.owner.content import Content, open_value, order_of
from detent.owner.views import ABSENT as NEVER_STORED
from detent.owner.views import DAMAGED, ERASED, JobView, Times, whereabouts
from detent.reuse.earlier_jobs import Compared, EarlierJob, EarlierJobs
from detent.reuse.ingredients import ABSENT, Change, CodeReader, describe, is_same_work, key_of_order
from detent.reuse.witness import CODED
from detent.runs.record.outcome import read_result
from detent.runs.record.recorded_run import report_of
from detent.store.api import JobRow, StoreReader, WorkRow

FIRST, CHANGED, AGAIN, NEVER, LOST, UNKNOWN = "first", "changed", "again", "never", "erased", "unknown"
"""Nothing of its name had been done; something it is made of had changed; the same work was done anew; it is never reused;
what had been done was erased; it cannot be told any more."""
CHANGES_TOLD_MAX: Final = 8
VALUE_COLUMNS_MAX: Final = 60
ARGUMENT_CHARS_MAX: Final = 2_000
"""Arguments longer than this are shown by digest."""
UNTOLD: Final = "salt"
"""The ingredient whose value is never shown."""


_UNREADABLE: Final[Mapping[str, str]] = {
    ERASED: "was erased",
    NEVER_STORED: "was never stored here",
    DAMAGED: "is damaged, `detent verify` says more",
}


@dataclass(frozen=True, slots=True)
class WhyRun:
    """The answer to "why was this not taken from before?"."""

    kind: str
    lines: tuple[str, ...]
    job_id: str | None = None
    """The earlier job with which it was compared."""
    run_id: str | None = None
    changes: tuple[Change, ...] = ()
    ingredients: int = 0
    """Of how many ingredients its key was made."""

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "kind": self.kind,
            "lines": list(self.lines),
            "earlier_job": self.job_id,
            "earlier_run": self.run_id,
            "changes": [change_map(change) for change in self.changes],
            "ingredients": self.ingredients,
        }


def change_map(change: Change) -> dict[str, object]:
    """One changed ingredient as data; an ingredient that one side lacks is left out there."""
    said: dict[str, object] = {"ingredient": change.name, "text": describe(change)}
    if change.name == UNTOLD:
        return said
    if change.old is not ABSENT:
        said["old"] = change.old
    if change.new is not ABSENT:
        said["new"] = change.new
    return said


def change_text(change: Change, content: Content, old: Call, new: Call | None) -> str:
    """A change with what it was and what it is: arguments by their values where these are short, the rest by digest."""
    told = describe(change)
    if change.old is ABSENT or change.new is ABSENT or " -> " in told or change.name == UNTOLD:
        return told
    if new is not None and change.name.startswith("argument:"):
        values = [_argument(content, call, change.name.removeprefix("argument:")) for call in (old, new)]
        if None not in values and values[0] != values[1]:
            return f"{told}: {values[0]} -> {values[1]}"
    return f"{told}: {_short(change.old)} -> {_short(change.new)}"


def why_run(
    reader: StoreReader,
    content: Content,
    view: JobView,
    known: dict[str, EarlierJobs] | None = None,
    element: int | None = None,
) -> WhyRun | None:
    """Why a job of a step or task was run, or an ``element`` of one; None for a job of another kind.

    ``known`` keeps what was read, by name, for the other jobs of the same run.
    """
    if view.job.job_kind not in {"action", "task"}:
        return None
    order = order_of(content, view.row)
    if order is not None and element is not None and element < len(order.elements):
        order = order.of_element(element)
    if order is None:
        lost = _UNREADABLE.get(whereabouts(reader, content, view.job.payload_digest)[0])
        if lost is None:
            return None  # A payload of an unknown kind.
        return WhyRun(UNKNOWN, (f"Why it ran cannot be told: what it was asked to do {lost}.",))
    ingredients = order.origin.ingredients
    if why := _never(order):
        return WhyRun(NEVER, (f"It is done every time: {why}.",), ingredients=len(ingredients))
    known = {} if known is None else known
    if (earlier_jobs := known.get(order.label)) is None:
        tenant, run_id = view.row.tenant_id, view.row.run_id
        earlier_jobs = known[order.label] = EarlierJobs(reader, content, tenant, order.label, beside_run=run_id)
    own = earlier_jobs.work(view.row.job_id)
    if own is not None and element is not None:
        key = key_of_order(order)
        own = None if key is None else own._replace(execution_key=parse_digest(key), element=element)
    if own is not None and (told := _same_work(reader, content, view, own, order)) is not None:
        return told

    def skip(one: EarlierJob) -> bool:
        return one.row.job_id == view.row.job_id or one.submitted_tick > view.job.submitted_tick

    compared = earlier_jobs.nearest(ingredients, order.origin.index, skip=skip)
    lost_row = earlier_jobs.erased_since(compared, view.job.submitted_tick)
    if lost_row is not None and lost_row.job_id != view.row.job_id:
        line = f"It had been done as {_whose(lost_row)}, which was erased on purpose since, so its result could not be reused."
        return WhyRun(LOST, (line,), lost_row.job_id, lost_row.run_id, ingredients=len(ingredients))
    if compared is None:
        return WhyRun(FIRST, ("Nothing of its name had been done here before.",), ingredients=len(ingredients))
    texts = [
        change_text(change, content, compared.order.call, order.call) for change in compared.changes[:CHANGES_TOLD_MAX]
    ]
    return _changed(compared, len(ingredients), texts, view.times)


def reused_from(job_id: str, row: JobRow | None, ingredients: Mapping[str, Any], times: Times) -> list[str]:
    """Why the result of an earlier job was taken, in sentences."""
    whence = f"job {job_id}" + ("" if row is None or row.run_id is None else f" of run {row.run_id}")
    if row is not None:
        whence += f", which ended at {moment(times, row.tick)}"
    count = len(ingredients)
    equal = f"All {count} ingredients of its key are equal" if count else "Its key is equal"
    return [f"Its result was taken from {whence}.", f"{equal}: the same code, arguments, inputs and environment."]


def taken_ingredients(content: Content, ingredients_digest: bytes | None) -> Mapping[str, Any]:
    """The ingredients that the record of a reuse names; empty when they were erased."""
    try:
        data = None if ingredients_digest is None else content.get(ingredients_digest)
        said = None if data is None else open_value(data)
    except DetentError:
        return {}
    found = said.get("ingredients") if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}


def _never(order: Order) -> str | None:
    """Why an order is never reused, as far as it says so itself."""
    ingredients = order.origin.ingredients
    if not ingredients:
        return "its cache is turned off, or its code or inputs could not be read when it was submitted"
    if order.call.kind == "shell":
        kinds = {name.partition(":")[0] for name in ingredients}
        lacking = [word for word in ("input", "output") if word not in kinds]
        if lacking:
            return f"a command that declares no {' and '.join(f'{word}s' for word in lacking)} may depend on anything"
    if ingredients.get("code", "") is None:
        return f"its code cannot be read completely{_unread(order)}; give it a `version` to reuse it anyway"
    return None


def _unread(order: Order) -> str:
    """Which part of the code cannot be read, as the source stands now."""
    if order.call.kind not in CODED:
        return ""
    called = order.call.target["compute"] if order.call.kind == "map" else order.call.target
    try:
        unresolved = CodeReader(order.call.base).digest(str(called)).unresolved
    except DetentError:
        return ""
    return f" ({unresolved[0].what} at {unresolved[0].where} {unresolved[0].why})" if unresolved else ""


def _same_work(reader: StoreReader, content: Content, view: JobView, own: WorkRow, order: Order) -> WhyRun | None:
    """Whether an earlier job had the very same key, and what spoke against its result."""
    before: JobRow | None = None
    place: int | None = None
    for row in reader.work(own.workspace, own.execution_key):
        if (row.job_id, row.element) == (own.job_id, own.element):
            break
        earlier = reader.job(row.job_id)
        asked = None if earlier is None else order_of(content, earlier)
        if asked is not None and row.element is not None:
            asked = asked.of_element(row.element) if row.element < len(asked.elements) else None
        if earlier is not None and (asked is None or is_same_work(asked, order.call, order.origin.ingredients)):
            before, place = earlier, row.element
    if before is None:
        return (
            None
            if order.origin.again is None
            else WhyRun(AGAIN, (f"No earlier result was taken: {order.origin.again}.",))
        )
    what = f"Job {element_id(before.job_id, place)}" + ("" if before.run_id is None else f" of run {before.run_id}")
    report = report_of(reader, content, before)
    failed = before.state == State.FAILED
    if report is not None and place is not None:
        report = report.of_element(place)
        failed = failed and (report is None or not report.ok)
    if order.origin.again is not None:  # As it was found when the job was submitted; older orders do not say.
        why = f"its result was not taken: {order.origin.again}"
    elif failed:
        why = "had failed, and failures are not reused unless `--reuse-failed` asks for it"
    elif before.state == State.CANCELED:
        why = "was cancelled"
    elif before.state not in {State.SUCCEEDED, State.FAILED} or before.tick > view.job.submitted_tick:
        why = "had not ended yet"
    elif report is None or not all(map(content.has, report.contents())):
        why = "had done it, but a part of its result is gone"
    elif order.call.outputs:
        why = "had done it; its outputs were not there as it had left them, or `--force` asked for it again"
    else:
        why = "had done it, and `--force` asked for it again"
    line = f"{what} was the same work and {why}."
    name = element_id(before.job_id, place)
    return WhyRun(AGAIN, (line,), name, before.run_id, ingredients=len(order.origin.ingredients))


def _whose(row: JobRow) -> str:
    return f"job {row.job_id}" + ("" if row.run_id is None else f" of run {row.run_id}")


def _changed(compared: Compared, ingredients: int, texts: Sequence[str], times: Times) -> WhyRun:
    row, changes = compared.row, compared.changes
    whose = f"job {compared.name}" + ("" if row.run_id is None else f" of run {row.run_id}")
    submitted = moment(times, Job.decode(row.body).submitted_tick)
    done = "done" if row.state == State.SUCCEEDED else "tried"
    if not changes:
        line = f"It had been {done} as {whose}, with other packages or another Python."
        return WhyRun(CHANGED, (line,), compared.name, row.run_id, ingredients=ingredients)
    number = "one thing" if len(changes) == 1 else f"{len(changes)} things"
    lines = [f"It had been {done} at {submitted} as {whose}; {number} changed since:"]
    lines += [f"  - {text}" for text in texts[:CHANGES_TOLD_MAX]]
    if len(changes) > CHANGES_TOLD_MAX:
        lines.append(f"  - and {len(changes) - CHANGES_TOLD_MAX} more: `-o json` has all")
    return WhyRun(CHANGED, tuple(lines), compared.name, row.run_id, tuple(changes), ingredients)


def _argument(content: Content, call: Call, name: str) -> str | None:
    """An argument of a call as short text; None when it is long, or what it names is gone."""
    if name in call.keywords:
        value = call.keywords[name]
    elif name.isdecimal() and 0 < int(name) <= len(call.arguments):
        value = call.arguments[int(name) - 1]
    else:
        return None
    if len(text := json.dumps(value, ensure_ascii=False)) > ARGUMENT_CHARS_MAX:
        return None

    def load(named: str) -> Any:
        report = read_result(content, named)
        data = None if report is None else report.result.value
        if data is None or len(data) > ARGUMENT_CHARS_MAX:
            raise InvalidInput(f"the result {named} is gone, or is long")
        return json.loads(data)

    try:
        text = json.dumps(restored(value, load, lambda file: file), ensure_ascii=False)
    except (DetentError, ValueError):
        return None
    return text if len(text) <= VALUE_COLUMNS_MAX else text[: VALUE_COLUMNS_MAX - 1] + "…"


def _short(value: Any) -> str:
    if type(value) is str and value.startswith("sha256:"):
        return value[: len("sha256:") + 10]
    text = show(value)
    return text if len(text) <= VALUE_COLUMNS_MAX else text[: VALUE_COLUMNS_MAX - 1] + "…"
