"""One job, or one element of an array, with its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.inspect.elements import elements_of
from detent.inspect.environment import environment_of_job
from detent.inspect.job_ledger import ledger_of
from detent.inspect.logs import attempts_of, job_times
from detent.jobs.status import project_job, timeline
from detent.owner import views
from detent.owner.content import Content, order_of
from detent.owner.ticks import SystemClock
from detent.pages.sheet import Cell, Cellish, Sheet, Told, state_cell, told
from detent.pages.show_elements import array_map, draw_elements, element_fields, proof_map
from detent.pages.show_run import action_map, draw_error, order_fields, order_map, report_fields, report_map
from detent.pages.text import BAD, STRONG, WARN, short
from detent.pages.timeline import draw_timeline
from detent.runs.cancel import cancel_note
from detent.runs.record.recorded_run import report_of
from detent.words.quantities import count_text, duration_text, size_text, time_text
from detent.words.states import FAILED, QUEUED, RUNNING, word_of
from detent.workers.live_output import live_since
from detent.workers.next_attempt import unreported, unreported_category

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.owner.views import JobView, RecordView
    from detent.store.api import StoreReader


def show_job(home: Home, reader: StoreReader, content: Content, view: JobView, element: int | None = None) -> Told:
    """Show a job, or one element of it."""
    page = _JobPage(home, reader, content, view, element)
    return told(page.document, page.draw)


class _JobPage:
    """What is known of a job, read once, for the document and for the page."""

    def __init__(
        self, home: Home, reader: StoreReader, content: Content, view: JobView, element: int | None = None
    ) -> None:
        self._content, self._view = content, view
        self._records = views.timeline_of_job(reader, content, view)
        self._asked = views.actions_on(reader, content, view)
        order = order_of(content, view.row)
        self._elements = [] if order is None or not order.elements else list(elements_of(reader, content, view, order))
        self._element = None if element is None else self._elements[element]
        self._order = order if self._element is None else self._element.order
        self._report = report_of(reader, content, view.row) if self._element is None else self._element.report
        self._note = cancel_note(reader, content, view.row)
        self._payload_place, self._payload_size = views.whereabouts(reader, content, view.job.payload_digest)
        settings = home.settings()
        self._ledger = ledger_of(reader, content, view, settings.policies(), settings.path)
        failed = word_of(view.row.state) == FAILED and self._report is None
        self._failed = view.job.reason_code if failed else None
        self._environment = environment_of_job(reader, view.row.job_id, view.row.partition)
        since_ms = live_since(home.path).get(view.row.job_id)
        times_ms = job_times(view, attempts_of(reader, content, view), since_ms, SystemClock().wall_ms())
        proof = None if self._element is None else proof_map(reader, content, view, self._element)
        self.document = self._document(*times_ms, proof)

    def _document(self, waited_ms: int | None, ran_ms: int | None, proof: dict[str, Any] | None) -> dict[str, Any]:
        view, job, shown = self._view, self._view.job, self._element
        return {
            "kind": "job",
            **view.to_map(),
            "status": word_of(project_job(job).status),
            "category": None if self._failed is None else unreported_category(self._failed),
            "job_kind": job.job_kind,
            "action": action_map(self._order, view),
            "attempts": sum(1 for record in self._records if record.fields.get("dispatch") is True),
            "waited_ms": waited_ms,
            "ran_ms": ran_ms,
            "failures": job.failures,
            "interruptions": job.interruptions,
            "max_retries": job.max_retries,
            "job_manifest_hash": views.plain(job.manifest_hash),
            "head": views.plain(view.row.head),
            "payload": {
                "digest": views.plain(job.payload_digest),
                "content": self._payload_place,
                "size_bytes": self._payload_size,
            },
            "lease": _lease_map(view),
            **view.times.to_map("ready", job.ready_tick),
            **self._ledger.to_map(),
            "order": order_map(self._order),
            "report": report_map(self._content, self._report),
            "environment": None if self._environment is None else self._environment.to_map(),
            "reason": self._note.get("reason"),
            "superseded_by": self._note.get("superseded_by"),
            "timeline": _times(self._records, view),
            **({} if shown is None else {"kind": "element", **shown.to_map(), "array": view.row.job_id}),
            **({} if proof is None else {"proof": proof}),
            **({} if shown is not None or not self._elements else {"elements": array_map(self._elements)}),
            "records": [record.to_map() for record in self._records],
            "operated": [record.to_map() for record in self._asked],
        }

    def draw(self, page: Sheet) -> None:
        """Draw the page."""
        shown, row = self._element, self._view.row
        if shown is not None:
            page.line(Cell("element ", STRONG), Cell(shown.name, STRONG), "  ", state_cell(shown.state))
        else:
            page.line(Cell("job ", STRONG), Cell(row.job_id, STRONG), "  ", state_cell(row.state))
        page.fields(self._fields(), indent="  ")
        if self._report is not None:
            draw_error(page, self._report)
        page.line()
        if self._elements and shown is None:
            draw_elements(page, self._content, self._elements)
            page.line()
        draw_timeline(page, self._records + self._asked)

    def _fields(self) -> list[tuple[str, Cellish]]:
        fields = self._job_fields()
        if "reason" in self._note:
            fields.append(("reason", self._note["reason"]))
        if self._failed is not None:
            said = unreported(self._failed, "it ended without a report")
            fields.append(("error", f"{self._failed} ({unreported_category(self._failed)}): {said}"))
        fields += [] if self._element is None else element_fields(self._element, self._view)
        fields += [] if self._order is None else order_fields(self._order)
        fields += [] if self._report is None else report_fields(self._content, self._report)
        environment = self._environment
        fields += [] if environment is None or not environment.locks else [("environment", environment.text)]
        return fields

    def _job_fields(self) -> list[tuple[str, Cellish]]:
        """What every job has: where it belongs, how often it was tried, what it used, its lease and its next attempt."""
        view, document, ledger = self._view, self.document, self._ledger
        job = view.job
        payload = _payload_cell(str(document["payload"]["digest"]), self._payload_place, self._payload_size)
        spent = f"{job.failures} failed of at most {job.max_retries} retries"
        waited, ran = duration_text(document["waited_ms"]), duration_text(document["ran_ms"])
        fields: list[tuple[str, Cellish]] = [
            ("run", view.row.run_id or "-"),
            ("tenant", view.row.tenant_id),
            ("kind", f"{job.job_kind}, priority {job.priority}"),
            ("attempts", f"{document['attempts']} ({spent}, {count_text(job.interruptions, 'interruption')})"),
            ("time", f"waited {waited}, ran {ran}"),
            ("used", ledger.used_text),
            *([("quota", ledger.quota_text)] if ledger.limited else []),
            ("payload", payload),
        ]
        if document["lease"] is not None:
            fields.append(("lease", f"{job.lease_holder} until {time_text(str(document['lease']['expiry_at']))}"))
        if job.ready_tick is not None:
            fields.append(("retry at", time_text(str(document["ready_at"]))))
        if document["timeline"] is not None:
            fields.append(("status", _times_text(document["timeline"])))
        return fields


def _lease_map(view: JobView) -> dict[str, Any] | None:
    job = view.job
    if job.lease_id is None:
        return None
    expiry = view.times.to_map("expiry", job.lease_expiry)
    return {"lease_id": views.plain(job.lease_id), "holder": job.lease_holder, **expiry}


def _times(records: list[RecordView], view: JobView) -> dict[str, Any] | None:
    """The statuses that a platform job has had, with their times, by its records alone; None for another kind of job."""
    if view.job.job_kind != "platform" or not all(record.fields for record in records):
        return None

    told = timeline(record.fields for record in records)
    answer = told.answer(tick_ms=view.times.tick_ms, epoch_base_ms=view.times.epoch_base_ms)
    return {**answer, "history": [word_of(status) for status in told.history], "status": word_of(told.status)}


def _times_text(times: Mapping[str, Any]) -> str:
    """The way of a job through its statuses in one line: ``queued 10:00:00.000, running, succeeded``."""
    at = {
        QUEUED: times["submitted_at"],
        RUNNING: times["first_started_at"],
        times["history"][-1]: times["finished_at"],
    }
    way = [f"{word} {time_text(str(at[word]))[11:]}" if at.get(word) else word for word in times["history"]]
    again = (
        f"; attempt {times['attempt'] + 1} began {time_text(str(times['started_at']))[11:]}" if times["attempt"] else ""
    )
    return f"{' > '.join(way)}{again}"


def _payload_cell(digest: str, place: str, size: int | None) -> Cell:
    if size is not None:
        return Cell(f"{short(digest)} {size_text(size)}")
    words = {"erased": "erased", "absent": "not stored here", "damaged": "damaged: `detent verify` says more"}
    return Cell(f"{short(digest)} {words.get(place, place)}", BAD if place == "damaged" else WARN)
