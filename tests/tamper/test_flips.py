"""Every byte: of records, evidence, batch records, signatures, commands, and of whole files. Each flip makes it red."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO

import pytest

from detent.kernel import KernelConfig
from detent.ledger import (
    BatchItem,
    Finding,
    HeaderItem,
    HeadItem,
    Item,
    Report,
    Trust,
    read_items,
    verify_bundle,
    verify_items,
    write_bundle,
)
from tests.ledger.build import Builder, digest_of
from tests.tamper.forge import Remembering, changed, flip


def small() -> Builder:
    """More than twenty records of all kinds in few batches."""
    ledger = Builder()
    ledger.submit("plain")
    ledger.submit("flaky")
    ledger.submit("late", priority=1)
    ledger.claim(2)
    ledger.commit()
    ledger.tick += 3
    ledger.finish("plain", detail_digest=digest_of("result"))
    ledger.finish("flaky", ok=False)
    ledger.cancel("late")
    ledger.start_run("run-1")
    ledger.submit("step", run_id="run-1")
    ledger.claim(1)
    ledger.reuse("run-1", "other", "plain")
    ledger.commit()
    ledger.advance(1_000)
    ledger.finish("step")
    ledger.end_run("run-1")
    ledger.start_run("run-2")
    ledger.reuse_run("run-2", "run-1")
    ledger.end_run("run-2")
    ledger.claim(1)
    ledger.erase(digest_of("gone"))
    ledger.commit()
    ledger.keep_head()
    return ledger


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of thousands of ledgers share their beginning: what pure functions said of it need not be asked again."""
    monkeypatch.setattr(Trust, "start", lru_cache(maxsize=64)(Trust.start))
    monkeypatch.setattr(KernelConfig, "decode", lru_cache(maxsize=64)(KernelConfig.decode))


LEDGER = small()
ROOT = LEDGER.root
ITEMS = LEDGER.items()
PREFIX: list[Item] = [item for item in ITEMS if isinstance(item, HeaderItem)]
BATCHES = [item for item in ITEMS if isinstance(item, BatchItem)]
REMEMBERING = Remembering()


def verified(batches: list[BatchItem]) -> Report:
    return verify_items([*PREFIX, *batches], root=ROOT, verify_many=REMEMBERING)


def changed_records(number: int, part: int) -> Iterator[tuple[int, int, BatchItem]]:
    """The batch with one bit flipped, at every byte of its records' bodies (0) or evidence (1)."""
    item = BATCHES[number]
    for index, record in enumerate(item.records):
        data = record[part]
        for place in range(len(data or b"")):
            assert data is not None
            pair = list(record)
            pair[part] = flip(data, place)
            assert pair[part] != data
            records = [*item.records[:index], (pair[0], pair[1]), *item.records[index + 1 :]]
            yield index, place, item._replace(records=records)  # type: ignore[arg-type]


def first_position(number: int) -> int:
    return sum(len(item.records) for item in BATCHES[:number])


def test_the_ledger_that_is_flipped_is_green_and_has_more_than_twenty_records() -> None:
    assert verified(BATCHES).findings == ()
    assert sum(len(item.records) for item in BATCHES) >= 20


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_a_flipped_bit_in_any_byte_of_any_record_is_found_in_its_batch(number: int) -> None:
    """Tampering: flip one bit in each byte position of a record (S/B). PIPE-083, X-166"""
    before, named, flips = BATCHES[:number], 0, 0
    for index, place, item in changed_records(number, 0):
        report = verified([*before, item])
        assert not report.ok, (index, place)
        assert all(finding.batch_no == number for finding in report.findings), (index, place)
        assert "RECORDS_ROOT_WRONG" in report.codes
        flips += 1
        named += any(finding.position == first_position(number) + index for finding in report.findings)
    assert flips == sum(len(body) for body, _ in BATCHES[number].records)
    assert named > 0.8 * flips, "nearly always the very record is named, not only its batch"


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_a_flipped_bit_in_any_byte_of_any_evidence_is_found_at_its_record(number: int) -> None:
    """Tampering: manifest, policy, trust and grounds are all named by digest or signed (X)"""
    before = BATCHES[:number]
    for index, place, item in changed_records(number, 1):
        report = verified([*before, item])
        assert not report.ok, (index, place)
        assert any(finding.position == first_position(number) + index for finding in report.findings) or (
            report.codes.keys() & {"TRUST_INVALID", "TRUST_ROOT_MISMATCH"}
        ), (index, place, report.codes)


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_a_flipped_bit_in_any_byte_of_a_batch_record_its_signature_or_its_commands_is_found(number: int) -> None:
    """Tampering: flip a bit in the signature, key id, or protected header (S/T)"""
    item = BATCHES[number]
    for name in ("body", "signature", "commands"):
        data = getattr(item, name)
        for place in range(len(data)):
            report = verified([*BATCHES[:number], changed(item, **{name: flip(data, place)})])
            assert not report.ok, (name, place)
            assert any(finding.batch_no in {number, None} for finding in report.findings)


def test_a_flipped_bit_in_any_byte_of_a_tree_head_is_found() -> None:
    [head] = LEDGER.heads
    data = head.note.encode()
    for place in range(len(data)):
        try:
            note = flip(data, place).decode()
        except UnicodeDecodeError:
            continue
        report = verify_items([*PREFIX, HeadItem(0, note), *BATCHES], root=ROOT, verify_many=REMEMBERING)
        assert report.codes.keys() & {"HEAD_INVALID", "HEAD_ROOT_MISMATCH", "HEAD_BEYOND_LEDGER"}, place


def tiny() -> Builder:
    ledger = Builder()
    ledger.submit("only")
    ledger.claim(1)
    ledger.commit()
    ledger.finish("only")
    ledger.content(b"some content")
    ledger.commit()
    ledger.keep_head()
    return ledger


TINY = tiny()
TINY_ROOT = TINY.root
FILE = TINY.bundle()


def said(data: bytes) -> set[str]:
    """What the reader alone finds; a verification takes over every word of it."""
    return {item.code for item in read_items(BytesIO(data)) if isinstance(item, Finding)}


def test_a_flipped_bit_in_any_byte_of_a_file_is_found() -> None:
    assert verify_bundle(BytesIO(FILE), TINY_ROOT, verify_many=REMEMBERING).ok
    for place in range(len(FILE)):
        other = flip(FILE, place)
        assert said(other), place
        if place % 29 == 0:
            report = verify_bundle(BytesIO(other), TINY_ROOT, verify_many=REMEMBERING)
            assert report.codes.keys() >= said(other)
            assert not report.ok, place


def test_every_shorter_file_is_found() -> None:
    for length in range(len(FILE)):
        assert said(FILE[:length]) == {"BUNDLE_TRUNCATED"}, length
        if length % 29 == 0:
            report = verify_bundle(BytesIO(FILE[:length]), TINY_ROOT, verify_many=REMEMBERING)
            assert "BUNDLE_TRUNCATED" in report.codes, length


def test_a_flipped_bit_is_found_even_if_the_file_is_rewritten_around_it() -> None:
    """The end item is no signature: what is inside has to hold by itself, in a run's bundle too."""
    ledger = LEDGER
    items = ledger.run_items("run-1")
    assert verify_items(items, root=ledger.root, verify_many=REMEMBERING).findings == ()
    for index, item in enumerate(items):
        if not hasattr(item, "tree_path"):
            continue
        for name in ("body", "signature"):
            data = getattr(item, name)
            for place in range(0, len(data), 7):
                forged = [*items[:index], changed(item, **{name: flip(data, place)}), *items[index + 1 :]]
                report = verify_bundle(BytesIO(b"".join(write_bundle(forged))), ledger.root, verify_many=REMEMBERING)
                assert not report.ok, (index, name, place)
