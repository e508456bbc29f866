"""Signed requests: what a signature covers, how it is written, and everything that is not one."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import pytest

from detent.access.signature import (
    CONTENT_DIGEST,
    SIGNATURE,
    SIGNATURE_INPUT,
    Said,
    read_content_digest,
    read_signature,
    sign,
)
from detent.canon import SigningKey
from detent.canon.crypto import verify_signature
from detent.errors import InvalidInput

KEY = SigningKey(bytes(range(32)))
NONCE = bytes(range(16))
SAID = Said("POST", "/v1/workers/w-1/turn", "", sha256(b"\xa0").digest())
PARAMETERS = (
    '("@method" "@path" "@query" "content-digest");created=1700000000;keyid="'
    "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
    '";nonce="000102030405060708090a0b0c0d0e0f";alg="ed25519";tag="detent/here"'
)
BASE = (
    '"@method": POST\n"@path": /v1/workers/w-1/turn\n"@query": ?\n'
    '"content-digest": sha-256=:w3ENfCW2vpGYvf8gdrnKOB5GJrJgRgeGWn+AKAY5r3c=:\n'
    f'"@signature-params": {PARAMETERS}'
)


def signed(said: Said = SAID) -> dict[str, str]:
    return sign(said, KEY, created=1_700_000_000, nonce=NONCE, origin="here")


def test_the_signature_base_is_that_of_rfc_9421() -> None:
    """Written out by hand: another implementation must come to the same bytes."""
    headers = signed()
    digest = b64encode(sha256(b"\xa0").digest()).decode()
    assert headers[CONTENT_DIGEST] == f"sha-256=:{digest}:"
    base = BASE.replace("w3ENfCW2vpGYvf8gdrnKOB5GJrJgRgeGWn+AKAY5r3c=", digest)
    assert headers[SIGNATURE_INPUT] == f"detent={PARAMETERS}"
    assert headers[SIGNATURE] == f"detent=:{b64encode(KEY.sign(base.encode())).decode()}:"
    assert verify_signature(KEY.public_key, base.encode(), read_signature(headers).signature)


def test_a_signature_is_read_back_as_it_was_made() -> None:
    found = read_signature(signed())
    assert (found.key_id, found.created, found.nonce, found.origin) == (KEY.key_id, 1_700_000_000, NONCE, "here")
    assert found.verifies(SAID, KEY.public_key)
    assert read_content_digest(signed()[CONTENT_DIGEST]) == sha256(b"\xa0").digest()


@pytest.mark.parametrize(
    "other",
    [
        replace(SAID, method="PUT"),
        replace(SAID, path="/v1/workers/w-2/turn"),
        replace(SAID, query="x=1"),
        replace(SAID, content_digest=sha256(b"\xa1").digest()),
    ],
)
def test_a_signature_counts_for_no_other_request(other: Said) -> None:
    assert not read_signature(signed()).verifies(other, KEY.public_key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("created=1700000000", "created=1700000001"),
        ('nonce="00', 'nonce="01'),
        ('tag="detent/here"', 'tag="detent/there"'),
    ],
)
def test_altered_parameters_do_not_verify(old: str, new: str) -> None:
    headers = signed()
    headers[SIGNATURE_INPUT] = headers[SIGNATURE_INPUT].replace(old, new)
    assert not read_signature(headers).verifies(SAID, KEY.public_key)


def test_another_key_does_not_verify() -> None:
    assert not read_signature(signed()).verifies(SAID, SigningKey(b"\x07" * 32).public_key)


INPUT = signed()[SIGNATURE_INPUT]
VALUE = signed()[SIGNATURE]
NOT_INPUTS = [
    *("", "detent", "detent=()", INPUT + " ", " " + INPUT, INPUT + ";x=1", INPUT + "," + INPUT, "sig1" + INPUT[6:]),
    INPUT.replace(' "@query"', ""),
    INPUT.replace('"@method" "@path"', '"@path" "@method"'),
    INPUT.replace("ed25519", "hmac-sha256"),
    INPUT.replace(';alg="ed25519"', ""),
    INPUT.replace("created=1700000000", "created=-1"),
    INPUT.replace("created=1700000000", "created=1e9"),
    INPUT.replace("created=1700000000", "created=999999999999"),
    INPUT.replace(";created=1700000000", ""),
    INPUT.replace('keyid="56', 'keyid="5G'),
    INPUT.replace('keyid="56', 'keyid="AB'),
    INPUT.replace('nonce="00', 'nonce="'),
    INPUT.replace('tag="detent/here"', 'tag="here"'),
    INPUT.replace('tag="detent/here"', 'tag="detent/"'),
    INPUT.replace('tag="detent/here"', 'tag="detent/' + "x" * 3_000 + '"'),
    INPUT.replace("detent/here", "detent/he re"),
    INPUT.replace("detent/here", 'detent/he\\"re'),
]
NOT_SIGNATURES = [
    *("", "detent=::", VALUE[:-1], VALUE + ":", VALUE.upper(), VALUE[7:], VALUE.replace("==:", "=:")),
    "detent=:" + "A" * 85 + "B==:",
    VALUE.replace("detent", "other"),
    VALUE + ", " + VALUE,
]
NOT_DIGESTS = [
    *("", "sha-256=::", "sha-512=:" + "A" * 43 + "=:", "sha-256=" + "A" * 43 + "=", "sha-256=:" + "A" * 42 + "B=:x"),
    "sha-256=:" + "A" * 42 + "B=:",
    "sha-256=:" + "_" * 43 + "=:",
]


@pytest.mark.parametrize("text", NOT_INPUTS)
def test_another_signature_input_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="signature-input"):
        read_signature({SIGNATURE_INPUT: text, SIGNATURE: VALUE})


@pytest.mark.parametrize("text", NOT_SIGNATURES)
def test_another_form_of_signature_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="signature"):
        read_signature({SIGNATURE_INPUT: INPUT, SIGNATURE: text})


@pytest.mark.parametrize("text", NOT_DIGESTS)
def test_another_content_digest_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"content-digest|base64"):
        read_content_digest(text)


def test_missing_headers_are_named() -> None:
    with pytest.raises(InvalidInput, match="no signature-input"):
        read_signature({})
    with pytest.raises(InvalidInput, match="no signature"):
        read_signature({SIGNATURE_INPUT: INPUT})
    with pytest.raises(InvalidInput, match="no content-digest"):
        read_content_digest(None)


def test_a_ledger_whose_name_cannot_be_written_is_refused() -> None:
    for origin in ("", "two words", 'quo"te', "x" * 201):
        with pytest.raises(InvalidInput):
            sign(SAID, KEY, created=1, nonce=NONCE, origin=origin)
    for created, nonce in ((-1, NONCE), (10**11, NONCE), (1, b"")):
        with pytest.raises(InvalidInput):
            sign(SAID, KEY, created=created, nonce=nonce, origin="here")
