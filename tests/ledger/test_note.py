from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import SigningKey, sha256
from detent.errors import InvalidInput, TrustError
from detent.ledger.note import (
    NOTE_BYTES_MAX,
    SIGNATURES_MAX,
    Note,
    NoteInvalid,
    Signature,
    TreeHead,
    cosign,
    key_hash,
    parse_head,
    parse_note,
    sign_head,
    verify_cosignature,
    verify_head,
)

ORIGIN = "detent/0123456789abcdef/p0"
LOG = SigningKey(b"\1" * 32)
WITNESS = SigningKey(b"\2" * 32)
HEAD = TreeHead(ORIGIN, 42, sha256(b"root"))
SIGNED = sign_head(HEAD, ORIGIN, LOG)

# The example of golang.org/x/mod/sumdb/note: a key, a text and its signature by another implementation.
GO_SEED = b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
GO_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_NOTE = (
    GO_TEXT
    + "\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)

# A checkpoint of a public log, signed by it in two ways and cosigned by four witnesses.
PUBLIC_ORIGIN = "arche2025h1.staging.ct.transparency.dev"
PUBLIC_KEY = b64decode("AU0vHmlGCS/PdN8b2OaGmKprLI8HKM+dJ472xgFYh15f")[1:]
PUBLIC_WITNESS = "remora.n621.de"
PUBLIC_WITNESS_KEY = b64decode("BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2")[1:]
PUBLIC_NOTE = """\
arche2025h1.staging.ct.transparency.dev
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— arche2025h1.staging.ct.transparency.dev zTM8sQAAAZ5W0WdjBAMARjBEAiBjW5IQf9pvsYLfQFX6hoGREPMHbdQ3urbllzalApkptQIgIpwtEroeW2BXaHAI4kJXFbon5Ch9MNL5zRNZ55lvGt0=
— arche2025h1.staging.ct.transparency.dev ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3NygNI75MdhL1bfTW9g8Ei59RA23oHP7Ry1k3ZFWwQ=
— transparency.dev/DEV:witness-little-garden 2AQqhwAAAABqEiEgzgFIqqhbUoDwjMWE6UP8nd8/KYTzwZ2rhIgcqoXHAwVkjZr4AscylP3v7sEodkRAErumC2q44vdgJY096st5BQ==
— witness1.smartit.nu/witness1 pIyCDwAAAABqEiEghIp82KWebrw7/oHQwlTAm3g2RKS4+eebl8eO0WH+/iEcxZ75W3u5hNI7TOQtmJbqmNWVuE0tgh0XwzdZsDsUAQ==
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5XeU/zZ0WBxtqB0DrAWfBw==
— witness.stagemole.eu Z/euoAAAAABqEiEgw0i+7g2ENfDAWHmtRzCfKTHSDwYDJA2NmKeGi9Y8FtEyOUvVr+AJmIY/2TUFucgKi7lI7cUiOvKFYe/TmN9DAg==
"""


def head_of(note: str, **changes: Any) -> TreeHead:
    arguments: dict[str, Any] = {"name": ORIGIN, "public_key": LOG.public_key, "origin": ORIGIN}
    return verify_head(note, **(arguments | changes))


def test_the_key_hash_and_signature_of_another_implementation_come_out() -> None:
    """X-168: c2sp.org/signed-note"""
    key = SigningKey(GO_SEED)
    assert key_hash("PeterNeumann", key.public_key).hex() == "c74f20a3"
    signature = Signature("PeterNeumann", bytes.fromhex("c74f20a3"), key.sign(GO_TEXT.encode()))
    assert str(Note(GO_TEXT, (signature,))) == GO_NOTE
    assert parse_note(GO_NOTE) == Note(GO_TEXT, (signature,))


def test_a_public_log_s_checkpoint_verifies() -> None:
    """X-168: c2sp.org/tlog-checkpoint"""
    head = verify_head(PUBLIC_NOTE, name=PUBLIC_ORIGIN, public_key=PUBLIC_KEY, origin=PUBLIC_ORIGIN)
    assert (head.origin, head.size) == (PUBLIC_ORIGIN, 1432088532)
    assert head.root == b64decode("U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=")
    assert str(parse_note(PUBLIC_NOTE)) == PUBLIC_NOTE


def test_a_public_witness_s_cosignature_verifies() -> None:
    """X-168: c2sp.org/tlog-cosignature"""
    assert verify_cosignature(PUBLIC_NOTE, name=PUBLIC_WITNESS, public_key=PUBLIC_WITNESS_KEY) == 0x6A122120
    changed = PUBLIC_NOTE.replace("1432088532", "1432088533")
    assert changed != PUBLIC_NOTE
    with pytest.raises(NoteInvalid, match="does not verify"):
        verify_cosignature(changed, name=PUBLIC_WITNESS, public_key=PUBLIC_WITNESS_KEY)


def test_a_signed_head_is_three_lines_a_blank_and_a_signature() -> None:
    """X-168"""
    lines = SIGNED.split("\n")
    assert lines[:4] == [ORIGIN, "42", b64encode(sha256(b"root")).decode(), ""]
    assert lines[4].startswith(f"— {ORIGIN} ")
    assert lines[5:] == [""]
    assert head_of(SIGNED) == HEAD
    assert sign_head(HEAD, ORIGIN, SigningKey(b"\1" * 32)) == SIGNED


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.text("abcÄ/ +-.0", min_size=1))
def test_every_head_reads_back_as_it_was_signed(size: int, root: bytes, origin: str) -> None:
    """X-168"""
    head = TreeHead(origin, size, root)
    assert head_of(sign_head(head, "log", LOG), name="log", origin=origin) == head


def test_a_head_of_another_origin_is_refused_even_under_the_same_key() -> None:
    """X-178"""
    foreign = sign_head(TreeHead("detent/other/p0", 42, HEAD.root), ORIGIN, LOG)
    with pytest.raises(NoteInvalid, match="of the log 'detent/other/p0'") as caught:
        head_of(foreign)
    assert isinstance(caught.value, TrustError)
    assert caught.value.code == "NOTE_INVALID"


def test_a_head_without_the_expected_key_s_signature_is_refused() -> None:
    """X-178"""
    with pytest.raises(NoteInvalid, match="no signature of"):
        head_of(sign_head(HEAD, ORIGIN, WITNESS))
    with pytest.raises(NoteInvalid, match="no signature of"):
        head_of(sign_head(HEAD, "other", LOG))


def test_signatures_of_unknown_keys_are_ignored_even_if_name_or_hash_is_shared() -> None:
    """X-178"""
    note = parse_note(SIGNED)
    own_hash = key_hash(ORIGIN, LOG.public_key)
    strangers = (
        Signature("stranger", own_hash, bytes(64)),
        Signature(ORIGIN, b"\0\0\0\0", b"any length"),
    )
    assert head_of(str(Note(note.text, (*strangers, *note.signatures)))) == HEAD


@pytest.mark.parametrize("place", [0, 1])
def test_one_bad_signature_of_a_known_key_spoils_the_note(place: int) -> None:
    """X-178: known bad means refuse all, wherever the bad one stands"""
    note = parse_note(SIGNED)
    bad = Signature(ORIGIN, key_hash(ORIGIN, LOG.public_key), bytes(64))
    signatures = [*note.signatures]
    signatures.insert(place, bad)
    with pytest.raises(NoteInvalid, match="does not verify"):
        head_of(str(Note(note.text, tuple(signatures))))


@given(st.data())
def test_no_changed_character_goes_unnoticed(data: st.DataObject) -> None:
    """X-178"""
    place = data.draw(st.integers(0, len(SIGNED) - 1))
    other = data.draw(st.sampled_from("\n 09azAZ+/=—\t\u00a0"))
    changed = SIGNED[:place] + other + SIGNED[place + 1 :]
    if changed == SIGNED:
        return
    with pytest.raises(NoteInvalid):
        head_of(changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda note: "",
        lambda note: "\n",
        lambda note: note[:-1],
        lambda note: note + "\n",
        lambda note: note + "\n\n",
        lambda note: note.replace("\n\n", "\n"),
        lambda note: note.replace("\n", "\r\n"),
        lambda note: note.replace("—", "-"),
        lambda note: note.replace("— ", "—"),
        lambda note: note.replace("— ", "—  "),
        lambda note: note.replace("— ", "— a+"),
        lambda note: note.replace("— ", "— a\u2003"),
        lambda note: note + "trailing\n",
        lambda note: note + "— name \n",
        lambda note: note + "— name AAAAAA==\n",
        lambda note: note + "— name AAAAAAB=\n",
        lambda note: note + "— name AAAA AAAA\n",
        lambda note: note + "— name AAAAAAA\n",
        lambda note: note + "— name AAAAAAA=AAAA\n",
        lambda note: note + "— name AA-_AAA=\n",
        lambda note: note + "— na\tme AAAAAAA=\n",
        lambda note: note + "— name AAAAAAA=\n" * SIGNATURES_MAX,
        lambda note: "\0" + note,
        lambda note: "\ud800" + note,
        lambda note: "x" * NOTE_BYTES_MAX + note,
    ],
)
def test_whatever_is_not_exactly_a_note_is_refused(change: Callable[[str], str]) -> None:
    """X-178"""
    changed = change(SIGNED)
    assert changed != SIGNED
    with pytest.raises(NoteInvalid):
        parse_note(changed)


def test_a_line_that_looks_signed_but_is_short_of_a_signature_is_the_only_fault() -> None:
    """X-178: the well-formed neighbours of the malformed lines above are accepted"""
    assert len(parse_note(SIGNED + "— name AAAAAAA=\n").signatures) == 2
    assert len(parse_note(SIGNED + "— name AAAAAAA=\n" * (SIGNATURES_MAX - 1)).signatures) == SIGNATURES_MAX
    assert SIGNATURES_MAX >= 16
    assert parse_note("a\n\nb\n\n— n AAAAAAA=\n").text == "a\n\nb\n"


ROOT_TEXT = b64encode(HEAD.root).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n42\n{ROOT_TEXT}\nextension\n",
        f"{ORIGIN}\n42\n",
        f"{ORIGIN}\n42\n{ROOT_TEXT}",
        f"\n42\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n042\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n00\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n+42\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n-1\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n 42\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n4_2\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n4\u0662\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n9223372036854775808\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n{'9' * 5000}\n{ROOT_TEXT}\n",
        f"{ORIGIN}\n42\n{ROOT_TEXT[:-1]}\n",
        f"{ORIGIN}\n42\n{ROOT_TEXT}=\n",
        f"{ORIGIN}\n42\n{b64encode(HEAD.root[:31]).decode()}\n",
        f"{ORIGIN}\n42\n{b64encode(HEAD.root + bytes(1)).decode()}\n",
        f"{ORIGIN}\n42\n{HEAD.root.hex()}\n",
        f"{ORIGIN}\n42\n{ROOT_TEXT} \n",
        "",
    ],
)
def test_a_signed_text_that_is_no_head_is_refused(text: str) -> None:
    """X-178"""
    with pytest.raises(NoteInvalid):
        parse_head(text)
    if text.endswith("\n"):
        signature = Signature(ORIGIN, key_hash(ORIGIN, LOG.public_key), LOG.sign(text.encode()))
        with pytest.raises(NoteInvalid):
            head_of(str(Note(text, (signature,))))


def test_the_empty_and_the_largest_tree_have_heads() -> None:
    for size in (0, 2**63 - 1):
        assert parse_head(f"{ORIGIN}\n{size}\n{ROOT_TEXT}\n") == TreeHead(ORIGIN, size, HEAD.root)


@pytest.mark.parametrize(
    ("origin", "size", "root"),
    [
        ("", 1, bytes(32)),
        ("two\nlines", 1, bytes(32)),
        ("tab\t", 1, bytes(32)),
        ("\ud800", 1, bytes(32)),
        (ORIGIN, -1, bytes(32)),
        (ORIGIN, 2**63, bytes(32)),
        (ORIGIN, True, bytes(32)),
        (ORIGIN, 1.0, bytes(32)),
        (ORIGIN, 1, bytes(31)),
        (ORIGIN, 1, "0" * 32),
    ],
)
def test_an_impossible_head_cannot_be_made(origin: Any, size: Any, root: Any) -> None:
    with pytest.raises(InvalidInput):
        TreeHead(origin, size, root)


@pytest.mark.parametrize("name", ["", "two words", "a+b", "line\n", "wide\u2003space", "\ud800"])
def test_a_key_name_that_no_reader_would_accept_is_not_signed_with(name: str) -> None:
    with pytest.raises(InvalidInput):
        sign_head(HEAD, name, LOG)
    with pytest.raises(InvalidInput):
        cosign(SIGNED, name, WITNESS, 1)


def test_a_witness_adds_its_line_and_the_log_s_still_verifies() -> None:
    """X-168"""
    cosigned = cosign(SIGNED, "witness", WITNESS, 1_771_372_800)
    assert cosigned.startswith(SIGNED)
    assert head_of(cosigned) == HEAD
    assert verify_cosignature(cosigned, name="witness", public_key=WITNESS.public_key) == 1_771_372_800
    twice = cosign(cosigned, "witness", WITNESS, 1_771_372_900)
    assert verify_cosignature(twice, name="witness", public_key=WITNESS.public_key) == 1_771_372_900


def test_a_cosignature_signs_the_time_and_the_text_under_its_own_header() -> None:
    """X-168"""
    [_, added] = parse_note(cosign(SIGNED, "witness", WITNESS, 7)).signatures
    assert added.key_hash == sha256(b"witness\n\x04" + WITNESS.public_key)[:4]
    assert added.value == (7).to_bytes(8, "big") + WITNESS.sign(b"cosignature/v1\ntime 7\n" + HEAD.text.encode())


def test_a_log_signature_is_no_cosignature_and_the_other_way_round() -> None:
    """X-178: even if one key were used for both"""
    with pytest.raises(NoteInvalid, match="no signature of"):
        verify_cosignature(SIGNED, name=ORIGIN, public_key=LOG.public_key)
    text = HEAD.text
    relabelled = Signature("w", sha256(b"w\n\x04" + LOG.public_key)[:4], bytes(8) + LOG.sign(text.encode()))
    with pytest.raises(NoteInvalid, match="does not verify"):
        verify_cosignature(str(Note(text, (relabelled,))), name="w", public_key=LOG.public_key)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1],
        lambda value: value + b"\0",
        lambda value: value[:8],
        lambda value: (8).to_bytes(8, "big") + value[8:],
        lambda value: value[:8] + bytes(64),
    ],
)
def test_a_changed_cosignature_is_refused(change: Callable[[bytes], bytes]) -> None:
    """X-178"""
    note = parse_note(cosign(SIGNED, "witness", WITNESS, 7))
    log, added = note.signatures
    damaged = Note(note.text, (log, Signature(added.name, added.key_hash, change(added.value))))
    with pytest.raises(NoteInvalid):
        verify_cosignature(str(damaged), name="witness", public_key=WITNESS.public_key)


def test_a_time_beyond_the_format_is_refused_on_both_sides() -> None:
    """X-178"""
    for time_s in (-1, 2**63, True, 1.0):
        with pytest.raises(InvalidInput):
            cosign(SIGNED, "witness", WITNESS, time_s)  # type: ignore[arg-type]
    late = 2**63
    value = late.to_bytes(8, "big") + WITNESS.sign(f"cosignature/v1\ntime {late}\n{HEAD.text}".encode())
    note = Note(HEAD.text, (Signature("w", sha256(b"w\n\x04" + WITNESS.public_key)[:4], value),))
    with pytest.raises(NoteInvalid):
        verify_cosignature(str(note), name="w", public_key=WITNESS.public_key)


def test_only_heads_are_cosigned() -> None:
    """X-178"""
    with pytest.raises(NoteInvalid):
        cosign(GO_NOTE, "witness", WITNESS, 1)
    with pytest.raises(NoteInvalid):
        cosign("not a note", "witness", WITNESS, 1)
