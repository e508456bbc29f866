"""What a running attempt says about itself: the lease it holds, and the resources it has used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.canon import UINT64_MAX, decode
from detent.canon.show import show
from detent.errors import Refused
from detent.kernel import commands as cmd
from detent.kernel import evidence as ev
from detent.kernel import identity
from detent.kernel.job import Job
from detent.kernel.manifest import digest_fault, id_fault
from detent.kernel.moves import end_over_quota
from detent.kernel.outcome import CONFLICT, DEDUPLICATED, JobState, Outcome
from detent.kernel.policy import QUOTA_OK
from detent.kernel.quota import DELTAS, add_usage

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState


def report_usage(kernel: PartitionState, command: cmd.ReportUsage, out: Outcome) -> None:
    """Add usage to the job's ledger, once for each report; a running job over its budget ends now (A.6)."""
    if type(command.report_no) is not int or not 0 <= command.report_no <= UINT64_MAX:
        message = f"report_no must be an integer from 0 to 2^64-1, not {show(command.report_no)}"
        return kernel.refuse(out, "INVALID_PARAMS", message, identity.JOB_HEARTBEAT)
    job = _closed_by(kernel, command) or leased_job(kernel, command, out)
    if job is None:
        return None
    if command.report_no != job.reports or job.state != "RUNNING":
        return _repeat_report(kernel, job, command, out)
    after = add_usage(job.usage, command)
    if isinstance(after, Refused):
        return kernel.refuse_with(out, after, identity.JOB_HEARTBEAT)
    job.usage = after
    job.reports += 1
    job.last_report = _deltas(command)
    out.changed = True
    verdict = kernel.verdict(job)
    if verdict != QUOTA_OK:
        end_over_quota(kernel, job, verdict, out)
    else:
        kernel.touch(job, job.transition_seq)
    out.job = JobState.of(job)
    return None


def leased_job(kernel: PartitionState, command: cmd.Heartbeat | cmd.ReportUsage, out: Outcome) -> Job | None:
    """The running job whose active lease a command names; refuses the command when there is none."""
    job = kernel.jobs.get(command.job_id) if type(command.job_id) is str else None
    if job is not None and job.lease_id == command.lease_id and job.state == "RUNNING":
        return job
    operator = identity.JOB_HEARTBEAT
    if fault := id_fault("job_id", command.job_id) or digest_fault("lease_id", command.lease_id):
        kernel.refuse(out, "INVALID_PARAMS", fault, operator)
    elif job is None and kernel.history.ended_job(command.job_id) is None:
        kernel.refuse(out, "UNKNOWN_JOB", f"there is no job {command.job_id!r}", operator, job_id=command.job_id)
    else:
        message = f"the lease is not the active one of job {command.job_id!r}"
        kernel.refuse(out, "LEASE_INVALID", message, operator, job_id=command.job_id)
    return None


def _closed_by(kernel: PartitionState, command: cmd.ReportUsage) -> Job | None:
    """The job whose last lease is the one a report names, if that lease has ended and had taken this report."""
    if id_fault("job_id", command.job_id) or digest_fault("lease_id", command.lease_id):
        return None
    job = kernel.jobs.get(command.job_id) or kernel.history.ended_job(command.job_id)
    if job is None or job.state == "RUNNING" or job.exit_seq is None or command.report_no >= job.reports:
        return None
    closing = kernel.history.record(job.job_id, job.exit_seq)
    body = None if closing is None else decode(closing.body)
    return job if isinstance(body, dict) and body["lease_id"] == command.lease_id else None


def _repeat_report(kernel: PartitionState, job: Job, command: cmd.ReportUsage, out: Outcome) -> None:
    """A report whose number has been taken gets its answer again; one that comes before its turn is refused (X-173)."""
    last = command.report_no == job.reports - 1
    if command.report_no >= job.reports or (last and _deltas(command) != job.last_report):
        message = f"job {job.job_id!r} has taken {job.reports} reports under this lease: {command.report_no} is another"
        kernel.refuse(
            out,
            "CONFLICT",
            message,
            identity.JOB_HEARTBEAT,
            status=CONFLICT,
            job_id=job.job_id,
            expected_report_no=job.reports,
        )
        return
    out.status = DEDUPLICATED
    out.job = JobState.of(job)
    closing = (
        None if job.state == "RUNNING" or job.exit_seq is None else kernel.history.record(job.job_id, job.exit_seq)
    )
    if last and closing is not None and closing.evidence is not None:
        # A report that ended the attempt was answered with the record that did.
        out.record = closing if ev.Evidence.decode(closing.evidence).kind == ev.QUOTA else None


def _deltas(command: cmd.ReportUsage) -> tuple[int, ...]:
    return tuple(getattr(command, name) for name in DELTAS)
