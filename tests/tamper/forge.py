"""The attacker's tools: a text editor only, or the owner's key.

Every function insists that it changed something. A test that tampered with nothing would pass over a verifier that finds
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from detent.canon import decode, encode, sha256, verify
from detent.kernel import AdvanceTick, encode_commands, evidence_ref, request_digest, transition_key
from detent.kernel.evidence import Evidence
from detent.ledger import BatchItem, Finding, Item, Report, verify_items
from detent.ledger.book import Signed
from tests.ledger.build import Builder, RawCommit

ALWAYS = {"ok": True}
LEASE = b"l" * 32
"""A lease that was never granted, and a digest of nothing."""


class Remembering:
    """Checks signatures, and knows those it has checked before: tampering leaves nearly all of them as they were."""

    def __init__(self) -> None:
        self._known: dict[Signed, bool] = {}

    def __call__(self, signed: Sequence[Signed]) -> list[bool]:
        for one in signed:
            if one not in self._known:
                self._known[one] = verify(*one)
        return [self._known[one] for one in signed]


def check(ledger: Builder, items: Sequence[Item] | None = None, **options: Any) -> Report:
    """Verify a ledger, or a tampered copy."""
    return verify_items(ledger.items() if items is None else items, **({"root": ledger.root} | options))


def found(report: Report, code: str) -> Finding:
    """The first finding of a code; fails if there is none."""
    assert not report.ok
    matching = [finding for finding in report.findings if finding.code == code]
    assert matching, f"{code} is not among {sorted(report.codes)}"
    return matching[0]


def flip(data: bytes, place: int) -> bytes:
    """One bit of one byte, another bit at every place."""
    return data[:place] + bytes((data[place] ^ 1 << place % 8,)) + data[place + 1 :]


def batches(items: Sequence[Item]) -> list[BatchItem]:
    return [item for item in items if isinstance(item, BatchItem)]


def with_batch(items: Sequence[Item], number: int, change: Callable[[BatchItem], BatchItem | None]) -> list[Item]:
    """The items with one batch changed, or left out when ``change`` gives None."""
    result: list[Item] = []
    seen = -1
    for item in items:
        kept: Item | None = item
        if isinstance(item, BatchItem):
            seen += 1
            if seen == number:
                kept = change(item)
                assert kept != item
        if kept is not None:
            result.append(kept)
    assert seen >= number
    return result


def with_records(items: Sequence[Item], number: int, change: Callable[[list[Any]], None]) -> list[Item]:
    """The items with the records of one batch changed in place."""

    def changed(item: BatchItem) -> BatchItem:
        records = list(item.records)
        change(records)
        return item._replace(records=records)

    return with_batch(items, number, changed)


def with_record(items: Sequence[Item], number: int, index: int, pair: tuple[bytes, bytes | None]) -> list[Item]:
    """The items with one record, and what stands beside it, put in the place of another."""
    return with_records(items, number, lambda records: records.__setitem__(index, pair))


def changed(item: Any, **changes: Any) -> Any:
    """An item with other values; that they are other is insisted on."""
    new = item._replace(**changes)
    assert new != item
    return new


def place_of(ledger: Builder, kind: str, job_id: str | None = None, seq: int | None = None) -> tuple[int, int]:
    """(batch, index) of a record."""
    for number, commit in enumerate(ledger.commits):
        for index, (body, _) in enumerate(commit.records):
            fields = decode(body)
            if fields["kind"] == kind and fields.get("job_id") == job_id and fields.get("transition_seq") == seq:
                return number, index
    raise AssertionError(f"no {kind} record of {job_id} {seq}")


def position_of(ledger: Builder, number: int, index: int) -> int:
    return sum(len(commit.records) for commit in ledger.commits[:number]) + index


def rewrite(ledger: Builder, number: int, index: int, **changes: Any) -> None:
    """As the owner: change fields of a record; the batch is sealed anew with everything after it."""
    body, evidence = ledger.commits[number].records[index]
    fields = decode(body)
    for name, value in changes.items():
        assert fields[name] != value
        fields[name] = value
    ledger.commits[number].records[index] = (encode(fields), evidence)


def append(ledger: Builder, *records: tuple[bytes, bytes | None], tick: int | None = None) -> RawCommit:
    """As the owner: a commit that no command led to."""
    tick = ledger.tick if tick is None else tick
    last = ledger.commits[-1]
    commit = replace(
        last,
        commands=encode_commands([AdvanceTick(tick)]),
        command_count=1,
        records=list(records),
        first_tick=tick,
        last_tick=tick,
    )
    ledger.commits.append(commit)
    return commit


def next_record(ledger: Builder, job_id: str, to_state: str, evidence: Evidence, **changes: Any) -> tuple[bytes, bytes]:
    """The record that would move a job on, every formula right, whether the move is or not."""
    job = ledger.rows[job_id]
    data = evidence.encode()
    reference = evidence_ref(data)
    fields: dict[str, Any] = {
        "kind": "transition",
        "tenant_id": job.tenant_id,
        "job_id": job_id,
        "attempt_id": job.attempt_id,
        "transition_seq": job.transition_seq,
        "from_state": job.state,
        "to_state": to_state,
        "evidence_ref": reference,
        "job_manifest_hash": job.manifest_hash,
        "lease_id": job.lease_id,
        "dispatch": to_state == "RUNNING",
        "reason_code": evidence.reason_code,
        "tick": ledger.tick,
        "partition_id": 0,
        "quota_policy_hash": job.quota_policy_hash,
        "quota_verdict": "OK",
        "batch_index": 0,
        "batch_len": 1,
        "prev_chain_hash": job.head,
        "signer_key_id": ledger.signer.key_id,
    }
    fields |= changes
    key = transition_key(fields["tenant_id"], job_id, fields["attempt_id"], fields["transition_seq"])
    derived = {"idempotency_key": key, "request_digest": request_digest(fields["from_state"], to_state, reference)}
    derived |= {"batch_id": key} | ({"lease_id": key} if to_state == "RUNNING" else {})
    return encode(
        derived | fields | ({"lease_id": key} if to_state == "RUNNING" and "lease_id" not in changes else {})
    ), data


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hex()}"


def running() -> Builder:
    """A ledger with a job in each live state and one that has ended; no tree heads."""
    ledger = Builder()
    for name in ("running", "failing", "ended"):
        ledger.submit(name, max_retries=0)
    ledger.claim(3)
    ledger.submit("queued")
    ledger.finish("ended")
    ledger.commit()
    ledger.tick += 10
    return ledger
