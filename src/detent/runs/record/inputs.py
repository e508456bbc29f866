"""What a run was started with, kept so that it can be found, resumed and repeated from the ledger alone (X-167, X-174)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Final
from uuid import UUID

from detent.canon import parse_digest
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract import Contract, bindings_digest, contract_digest, from_document, long_form
from detent.contract.model import JobFault
from detent.errors import DetentError, StoreCorrupt
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.owner.backend import Backend
from detent.owner.place import LOCKS
from detent.runs.record.identity import RunLock, is_driven

INPUTS_VERSION: Final = 1

__all__ = [
    "LOCKS",
    "RunIdentity",
    "RunInputs",
    "RunLock",
    "check_job",
    "digests_of",
    "is_driven",
    "parse_inputs",
    "unfinished",
]
RETRY_OF: Final = "retry_of"
TRACEPARENT: Final = "traceparent"
"""The trace that a run of a server belongs to: what the inputs say of it, and its jobs are given."""
REQUEST_ID: Final = "request_id"
"""The request to the server that began it, in the same way."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The contract with the values it is run with."""

    contract: Contract
    params: Mapping[str, JsonValue]
    about: Mapping[str, JsonValue] = field(default_factory=dict)
    """What else belongs to it: the occurrence of a schedule, the run that is retried."""
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    """What was asked for that changes what is decided, such as ``force``. It says how the run began, not which run it is:
    the process that resumes it may ask for something else."""

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self.contract.outline.name

    def document(self) -> dict[str, JsonValue]:
        """As plain JSON."""
        document: dict[str, JsonValue] = {
            "version": INPUTS_VERSION,
            "contract": long_form(self.contract),
            "base": self.contract.base,
            "file": self.contract.name,
            "params": dict(self.params),
            "about": dict(self.about),
        }
        return {**document, "options": dict(self.options)} if self.options else document


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which run it is."""

    run_id: str
    operation_id: UUID
    resumed: bool = False


def check_job(target: Mapping[str, Any], values: Mapping[str, JsonValue]) -> Sequence[JobFault]:
    """What is wrong with a ``job:`` payload of a contract that is about to be run. Recorded contracts are taken as they are."""
    from detent.runs.record.job_check import job_faults  # noqa: PLC0415 - the runners, for contracts that have one

    return job_faults(target, values)


def parse_inputs(document: Any, run_id: str) -> RunInputs:
    """What `RunInputs.document` wrote; `StoreCorrupt` for anything else."""
    if not isinstance(document, dict) or document.get("version") != INPUTS_VERSION:
        raise StoreCorrupt(f"the inputs of run {run_id!r} are of another form")
    contract = from_document(document["contract"], name=document["file"], base=document["base"], recorded=True)
    return RunInputs(contract, document["params"], document["about"], document.get("options", {}))


def digests_of(contract: Contract) -> tuple[bytes, bytes]:
    """The digests by which a run's record names what it runs."""
    known = _digests.get(id(contract))
    if known is None or known[0] is not contract:
        digests = parse_digest(contract_digest(contract)), parse_digest(bindings_digest(contract))
        _digests.clear()
        known = _digests[id(contract)] = (contract, digests)
    return known[1]


_digests: dict[int, tuple[Contract, tuple[bytes, bytes]]] = {}
"""Those of the contract that was asked for last: they are asked for several times, and a large contract takes a while."""


def unfinished(backend: Backend, inputs: RunInputs) -> Iterator[Run]:
    """Runs of the same contract, bindings and inputs that have not ended, newest first."""
    digests = digests_of(inputs.contract)
    for row in backend.reader.runs(status=RUNNING):
        if row.tenant_id != backend.tenant:
            continue
        run = Run.decode(row.body)
        if (run.contract_digest, run.bindings_digest) != digests:
            continue
        with suppress(DetentError):  # Its inputs were erased: it cannot be the one that is meant.
            document: Any = backend.unsealed(run.inputs_digest)
            same = {name: document[name] for name in ("base", "params", "about")}
            if same == {"base": inputs.contract.base, "params": dict(inputs.params), "about": dict(inputs.about)}:
                yield run
