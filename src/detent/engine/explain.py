"""Why a job stands where it stands: what it waits for now, and how it came there.

The past is read off the ledger: every record of the job, the evidence beside it, and the decision record its evidence
names (`explain_story`); what was refused about it comes from the decision log (`explain_refusals`), and what is not stored
of a decision is made again (`explain_remake`). The present is asked of the scheduler, rebuilt as it stands at the ledger's
end (`explain_now`).
Nothing here changes anything, and no owner is needed.
"""

from __future__ import annotations

from detent.canon.late import dataclass
from detent.engine.content import Content
from detent.engine.explain_chapter import Chapter, plain_decision
from detent.engine.explain_now import Present, present_of
from detent.engine.explain_refusals import refusals_of
from detent.engine.explain_remake import remake
from detent.engine.explain_story import named_decision, story_of
from detent.engine.inspect import Times, job_view, timeline_of_job
from detent.errors import CODES, InvalidInput
from detent.store.api import REFUSALS_KEPT_MAX, StoreReader
from detent.words.states import word_of


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why": where the job stands now and how it came there."""

    job_id: str
    state: str | None
    """None for a job that was refused and never came to be."""
    as_of: str
    """The moment of the ledger's last entry: "now" is then."""
    present: Present
    story: tuple[Chapter, ...]

    @property
    def now(self) -> tuple[str, ...]:
        """Where it stands, in sentences."""
        return self.present.lines

    def to_map(self) -> dict[str, object]:
        """As data: one document."""
        present = self.present
        return {
            "job_id": self.job_id,
            "state": None if self.state is None else word_of(self.state),
            "as_of": self.as_of,
            "now": list(present.lines),
            "waiting": plain_decision(present.waiting),
            "head": plain_decision(present.head),
            "ahead": list(present.ahead),
            "ahead_total": present.ahead_total,
            "story": [chapter.to_map() for chapter in self.story],
        }


def explain(
    reader: StoreReader, content: Content, job_id: str, *, at_work: bool | None = None, again: bool = False
) -> Explanation:
    """Explain one job. Raises `InvalidInput` for a job that nobody ever asked for here.

    ``reader`` should be a snapshot: the records, the rows and the scheduler are looked at one after the other. ``again``
    has the job's decisions made once more: that brings back what is not stored of them, and takes as long as a replay.
    """
    view = job_view(reader, job_id)
    if view is None:
        return _never_a_job(reader, job_id)
    records = timeline_of_job(reader, content, view)
    remade = None
    if again:
        named = [digest for record in records if (digest := named_decision(record)) is not None]
        remade = remake(reader, view.row.partition, job_id, named)
    story, ending = story_of(reader, content, view, records, remade)
    present = present_of(reader, view, records, ending, at_work=at_work)
    as_of = view.times.iso(reader.head(view.row.partition).last_tick)
    return Explanation(job_id, view.job.state, as_of, present, story)


def _never_a_job(reader: StoreReader, job_id: str) -> Explanation:
    times = Times.of(reader)
    refusals = refusals_of(reader, job_id, times)
    if not refusals:
        if reader.run(job_id) is not None:
            raise InvalidInput(
                f"{job_id!r} is a run, and jobs are explained", hint=f"`detent show {job_id}` lists its jobs"
            )
        raise InvalidInput(
            f"there is no job {job_id!r} here, and none of the last {REFUSALS_KEPT_MAX:,} refusals was about one",
            hint="`detent list --jobs` shows all",
        )
    newest = next(iter(reader.refusals(job_id=job_id, limit=1)))
    lines = ["It was refused and never became a job: nothing of it is queued."]
    code = CODES.get(newest.code)
    if code is not None:
        lines.append(
            f"That can pass ({newest.code}: {code.meaning}): the same submission may succeed later."
            if code.retryable
            else f"That does not pass by itself ({newest.code}: {code.meaning}): something has to change first."
        )
    as_of = times.iso(max(reader.head(partition).last_tick for partition in range(reader.partitions)))
    return Explanation(job_id, None, as_of, Present(tuple(lines)), refusals)
