"""The commands the kernel takes, and their recorded form.

A command is data: everything that may vary (time, ids, new leases' holders) is in it, its tick included. The owner stamps the
tick, the kernel applies the command, and the batch record binds the bytes made here, so that a restore or a replay
applies exactly the same thing again (X-165).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeAlias

from detent.canon import UINT64_MAX, decode, encode_trusted, sha256
from detent.canon.late import dataclass
from detent.errors import InvalidInput, Refused
from detent.kernel.manifest import Manifest, RefusedManifest, VerifiedManifest

COMMANDS_LABEL = b"detent/commands/v1\x00"
OUTCOME_OF_REQUEST = ""
"""In place of an outcome: the code of the first refusal among the commands before it in the same request, or ``OK``."""
DUE_MAX = 10_000
"""Expiries and requeues that one command commits which only lets time pass; the next one goes on at the same tick."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Make a job from a verified manifest (``JobSubmit_v1``).

    A manifest that did not verify comes with the reason found at the border, so that its refusal is answered and logged
    like any other. It can change nothing but the time, and is recorded, if at all, as the time it let pass.
    """

    tick: int
    manifest: VerifiedManifest | RefusedManifest
    run_id: str | None = None
    request: bytes | None = None
    """What the job asks of the place where it runs; for the scheduler to read."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Move a job by one legal edge (``JobTransition_v1``).

    ``evidence`` are the bytes of the evidence map. Without them ``evidence_ref`` must name evidence of an earlier record
    of the same job. ``epoch`` says which owner asks; an owner that has been replaced is refused.
    """

    tick: int
    tenant_id: str
    job_id: str
    attempt_id: int
    expected_transition_seq: int
    from_state: str
    to_state: str
    evidence: bytes | None = None
    evidence_ref: str | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Say that a lease's worker is alive (``JobHeartbeat_v1``)."""

    tick: int
    job_id: str
    lease_id: bytes
    progress: bool = False
    """Whether the job itself has got on, not only its worker is alive: sets back its idle limit, if it has one."""
    lease: str | None = None
    """A lease policy that holds beside the job's own, as in the claim; None: there is none."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Bring a job to CANCELED by legal moves (``JobCancel_v1``)."""

    tick: int
    tenant_id: str
    job_id: str
    reason_code: str = "CANCELLED_BY_USER"
    expected_transition_seq: int | None = None
    detail_digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Hand the next queued jobs to a worker: dequeue and commit QUEUED->RUNNING for each (X-007)."""

    tick: int
    replica_id: str
    limit: int = 1
    tenants: tuple[str, ...] | None = None
    """The workspaces whose jobs the worker may run; None: all of them."""
    kinds: tuple[str, ...] | None = None
    """The kinds of jobs that it can run; None: all of them."""
    without: tuple[str, ...] | None = None
    """Jobs that it has given back because it cannot run them; None: there are none."""
    labels: tuple[str, ...] | None = None
    """What the worker offers to jobs that ask for it, such as ``pool:gpu``; None: nothing in particular."""
    lease: str | None = None
    """A lease policy that holds beside the job's own, for workers that are heard of less often; of two the longer one counts."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Place what can be placed now, wherever that is: a claim in the name of every replica (X-007)."""

    tick: int
    limit: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    """Tell the scheduler something that only it understands: a replica that came or changed, a session's budget."""

    tick: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """Close the attempt a lease stands for; the kernel decides whether that ends the job (A.7).

    ``kind`` is the evidence: a ``result``, an abort by the ``watchdog``, or an attempt that was ``interrupted`` or whose
    worker is provably gone (``worker_lost``).
    """

    tick: int
    job_id: str
    lease_id: bytes
    kind: str = "result"
    ok: bool = True
    reason_code: str = "COMPLETED"
    category: str | None = None
    detail_digest: bytes | None = None
    used: tuple[int, ...] | None = None
    """What the attempt used beside what it has reported: `USED` in this order; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class ReportUsage:
    """Add what a running attempt has used to its job's resource ledger.

    ``report_no`` counts the reports of one lease from 0 on, without gaps. The same report again is the same answer and
    adds nothing (X-173).
    """

    tick: int
    job_id: str
    lease_id: bytes
    report_no: int
    bytes_allocated: int = 0
    """Change of the bytes now allocated; may be negative."""
    io_bytes_read: int = 0
    io_bytes_written: int = 0
    gpu_time_ms: int = 0
    cpu_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AdvanceTick:
    """Let time pass: commits what is due, at most ``due_max`` of it.

    What is left stays due. Every other command commits all of it first, so a caller that needs small batches repeats this one
    until nothing is due.
    """

    tick: int
    due_max: int = DUE_MAX


@dataclass(frozen=True, slots=True)
class Resume:
    """Advance time after a stall of the owner itself.

    Leases named here sent their heartbeat while the owner could not take it, so they are extended before anything expires
    (X-180). ``due_max`` is that of `AdvanceTick`.
    """

    tick: int
    beats: tuple[tuple[str, bytes] | tuple[str, bytes, str], ...] = ()
    """Of each the job and its lease, and the policy beside the job's own if its worker names one."""
    due_max: int = DUE_MAX


@dataclass(frozen=True, slots=True)
class StartRun:
    """Open a run: what is about to be executed, by digests."""

    tick: int
    tenant_id: str
    run_id: str
    name: str
    contract_digest: bytes
    bindings_digest: bytes
    inputs_digest: bytes
    operation_id: str


@dataclass(frozen=True, slots=True)
class ReuseStep:
    """Record that a step took its result from an earlier job instead of running.

    A step of a run is reused once: the same again is the same answer, another reuse of it a conflict (X-173).
    """

    tick: int
    run_id: str
    step_id: str
    job_id: str
    ingredients_digest: bytes
    element: int | None = None
    """Which element of the job, when that is an array. Others of it may have failed; what came of this one, the report says."""


@dataclass(frozen=True, slots=True)
class ReuseRun:
    """Record that a run took the results of all jobs of an earlier one, but for the steps that are excepted.

    A run is reused from one earlier run at most: the same again is the same answer, another one a conflict (X-173).
    """

    tick: int
    run_id: str
    reused_run_id: str
    except_steps: tuple[str, ...]
    """Ids of steps that the earlier run ran, and whose results were not taken; in order, each once."""
    ingredients_digest: bytes


@dataclass(frozen=True, slots=True)
class EndRun:
    """Close a run: binds every job of it with its count and head."""

    tick: int
    run_id: str
    status: str
    reason_code: str | None = None
    """Why it ended so, where its jobs do not say it: RUN_TIMEOUT."""


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """A new owner begins: its epoch, its key and the configuration it decides by."""

    tick: int
    epoch: int
    signer_key_id: bytes
    config: bytes


@dataclass(frozen=True, slots=True)
class ChangeTrust:
    """Announce a version of the trust configuration; ``signed_config`` are its stored bytes."""

    tick: int
    version: int
    config_digest: bytes
    signed_config: bytes


@dataclass(frozen=True, slots=True)
class Erase:
    """Record that content has been erased on purpose.

    ``expected_erasures`` is the number of erasures recorded so far. The same request again is the same answer; one that
    expects another number is a conflict. Content may come back and be erased again, so the digests alone cannot tell a
    repeat from a new wish (X-173).
    """

    tick: int
    digests: tuple[bytes, ...]
    expected_erasures: int
    reason_code: str = "ERASED_BY_USER"


@dataclass(frozen=True, slots=True)
class Operate:
    """Record what a person or a program asked of the server, and how that ended.

    Stands behind the other commands of the same request, so that wish, effect and outcome share one commit. ``outcome_code`` is
    `OUTCOME_OF_REQUEST` until those commands have been decided; the owner puts in what came of them.
    """

    tick: int
    principal_id: str
    credential_id: str
    action: str
    object_kind: str
    object_id: str
    outcome_code: str
    request_digest: bytes
    tenant_id: str | None = None
    """The workspace it was asked in; None for what concerns the whole server."""
    evidence: bytes | None = None
    """Canonical map of some of `kernel.operators.OPERATED_EVIDENCE`."""


@dataclass(frozen=True, slots=True)
class EnrollWorker:
    """Record that a worker's key may sign results from here on, with its certificate and the proof that it holds the key."""

    tick: int
    worker_id: str
    key_id: bytes
    certificate_digest: bytes
    evidence: bytes
    """Canonical map of ``certificate`` and ``proof``, each the bytes of a signed envelope."""


@dataclass(frozen=True, slots=True)
class RetireWorker:
    """Record that a worker's key signs nothing more: results that are recorded behind this one do not count."""

    tick: int
    worker_id: str
    reason_code: str


Command: TypeAlias = (
    Submit
    | Transition
    | Heartbeat
    | Cancel
    | Claim
    | Dispatch
    | Order
    | Finish
    | ReportUsage
    | AdvanceTick
    | Resume
    | StartRun
    | ReuseStep
    | ReuseRun
    | EndRun
    | RaiseEpoch
    | ChangeTrust
    | Erase
    | Operate
    | EnrollWorker
    | RetireWorker
)

_NAMES: dict[type[Command], str] = {
    Submit: "submit",
    Transition: "transition",
    Heartbeat: "heartbeat",
    Cancel: "cancel",
    Claim: "claim",
    Dispatch: "dispatch",
    Order: "order",
    Finish: "finish",
    ReportUsage: "usage",
    AdvanceTick: "tick",
    Resume: "resume",
    StartRun: "run_start",
    ReuseStep: "step_reuse",
    ReuseRun: "run_reuse",
    EndRun: "run_end",
    RaiseEpoch: "epoch",
    ChangeTrust: "trust",
    Erase: "erase",
    Operate: "operate",
    EnrollWorker: "worker_enroll",
    RetireWorker: "worker_retire",
}
_CLASSES = {name: cls for cls, name in _NAMES.items()}
_LATER = {EndRun: 1, Finish: 1, ReuseStep: 1, Claim: 5, Heartbeat: 1}
"""Commands whose last fields came later than the others, and how many: they are left out from the end where they are None."""
_FIELDS: dict[type[Command], tuple[str, ...]] = {cls: tuple(field.name for field in fields(cls)) for cls in _NAMES}
_VALUES: dict[type[Command], Callable[[Command], tuple[Any, ...]]] = {
    cls: attrgetter(*names) for cls, names in _FIELDS.items()
}
"""The values of a command, in order; every kind has several."""


def stamped(command: Command, tick: int) -> Command:
    """The same command at another tick; what `dataclasses.replace` does, for the way that every command takes."""
    cls = type(command)
    values = _VALUES.get(cls)
    return replace(command, tick=tick) if values is None else cls(tick, *values(command)[1:])


def encode_commands(commands: Sequence[Command]) -> bytes:
    """The recorded form of a group commit's commands, in their order."""
    return encode_trusted([command_to_list(command) for command in commands])


def commands_digest(blob: bytes) -> bytes:
    """The digest by which a batch record binds its commands."""
    return sha256(COMMANDS_LABEL + blob)


def command_to_list(command: Command) -> list[object]:
    """One command as a list: its name, then its fields in order."""
    cls = type(command)
    if cls is Submit:
        manifest = command.manifest  # type: ignore[union-attr]
        if type(manifest) is RefusedManifest:
            return ["tick", command.tick, UINT64_MAX]
        signed = [manifest.body, manifest.key_id, manifest.signature]  # type: ignore[union-attr]
        return ["submit", command.tick, *signed, command.run_id, command.request]  # type: ignore[union-attr]
    values = list(_VALUES[cls](command))
    if cls is Resume:
        values[1] = [list(beat) for beat in values[1]]
    elif cls is Erase:
        values[1] = list(values[1])
    elif cls is ReuseRun:
        values[3] = list(values[3])
    elif later := _LATER.get(cls, 0):
        for _ in range(later):
            if values[-1] is not None:
                break
            values.pop()  # As it was recorded before there was such a field.
        values = [list(value) if type(value) is tuple else value for value in values]
    return [_NAMES[cls], *values]


def decode_commands(blob: bytes) -> list[Command]:
    """Read recorded commands back; raises `InvalidInput` on anything that `encode_commands` did not make."""
    value = decode(blob)
    if not isinstance(value, list):
        raise InvalidInput("recorded commands are a list")
    return [command_from_list(item) for item in value]


def command_from_list(item: object) -> Command:
    """Rebuild one command from its recorded list."""
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        raise InvalidInput("a recorded command is a list that starts with its name")
    name, *values = item
    cls = _CLASSES.get(name)
    if cls is None:
        raise InvalidInput(f"unknown recorded command {name!r}")
    if cls is Submit:
        return _submit_from(values)
    missing = len(_FIELDS[cls]) - len(values)
    if missing < (later := _LATER.get(cls, 0)) and values and values[-1] is None:
        raise InvalidInput(
            f"recorded command {name!r} has an empty {_FIELDS[cls][-1 - missing]}, which is left out instead"
        )
    if 0 < missing <= later:
        values += [None] * missing
    if len(values) != len(_FIELDS[cls]):
        raise InvalidInput(f"recorded command {name!r} has {len(values)} fields, not {len(_FIELDS[cls])}")
    if cls is Resume or cls is Erase:
        values[1] = _tuples(values[1])
    elif cls is ReuseRun:
        values[3] = _tuples(values[3])
    elif cls is Finish or cls is Claim:
        values = [_tuples(value) for value in values]
    return cls(*values)


def _tuples(value: object) -> object:
    """Lists as the tuples they were before they were recorded; the kernel judges what is in them."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _submit_from(values: list[object]) -> Submit:
    if len(values) != 6:
        raise InvalidInput("recorded command 'submit' has the wrong number of fields")
    tick, body, key_id, signature, run_id, request = values
    manifest = Manifest.parse(body)  # type: ignore[arg-type]
    if isinstance(manifest, Refused):
        raise InvalidInput(f"recorded manifest: {manifest.message}")
    if type(key_id) is not bytes or type(signature) is not bytes:
        raise InvalidInput("a recorded manifest has the bytes of a key id and a signature beside it")
    return Submit(tick, VerifiedManifest(manifest, body, key_id, signature), run_id, request)  # type: ignore[arg-type]
