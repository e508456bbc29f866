"""Tree heads as signed notes: c2sp.org/signed-note, tlog-checkpoint and tlog-cosignature.

A tree head says three things in three lines: whose log (``origin``), how many leaves, which root. The log signs that text;
a witness that has checked it against what it saw before adds a cosignature with a time. Both are lines below the text,
so a head can be passed on, printed, or compared by any tool that knows the format::

    detent/0123456789abcdef/p0
    42
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

    — detent/0123456789abcdef/p0 Az3grlgtzPIC...

Reading is strict: exactly the format, bounded, base64 in its one canonical form. Two choices are narrower than the
specification: a head has no extension lines (they could not be audited), and one bad signature of a known key spoils the
note even if another signature of that key is good.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Final

from detent.canon.crypto import SigningKey, sha256, verify
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import InvalidInput, TrustError

NOTE_BYTES_MAX: Final = 128 * 1024
"""Room for 16 signatures of any kind in use, post-quantum ones included, which every reader of notes must accept."""
SIGNATURES_MAX: Final = 32
SIZE_MAX: Final = 2**63 - 1
TIME_MAX: Final = 2**63 - 1

_ALG_ED25519: Final = b"\x01"
_ALG_COSIGNATURE: Final = b"\x04"
_KEY_HASH_BYTES: Final = 4
_TIME_BYTES: Final = 8
_SIGNATURE_LINE = pattern("\N{EM DASH} ([^ ]+) ([A-Za-z0-9+/]+={0,2})")
_SIZE = pattern("0|[1-9][0-9]{0,18}")
_CONTROL = pattern(r"[\x00-\x09\x0b-\x1f]")


class NoteInvalid(TrustError):
    """A note that is malformed, not signed by the expected key, or signed wrongly."""

    code = "NOTE_INVALID"


@dataclass(frozen=True, slots=True)
class TreeHead:
    """The size and root of one log's tree."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        if not _is_line(self.origin):
            raise InvalidInput(f"an origin is one line of text, got {show(self.origin)}")
        if type(self.size) is not int or not 0 <= self.size <= SIZE_MAX:
            raise InvalidInput(f"a tree size is an integer from 0 to 2**63-1, got {show(self.size)}")
        if type(self.root) is not bytes or len(self.root) != 32:
            raise InvalidInput(f"a root hash has 32 bytes, got {show(self.root)}")

    @property
    def text(self) -> str:
        """The text that is signed: three lines, each with its newline."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature line, verified or not: key name, key hash, and what the algorithm put there."""

    name: str
    key_hash: bytes
    value: bytes

    @property
    def line(self) -> str:
        """The line as written in a note, with its newline."""
        return f"\N{EM DASH} {self.name} {b64encode(self.key_hash + self.value).decode()}\n"


@dataclass(frozen=True, slots=True)
class Note:
    """A parsed note. Its text means nothing until one of its signatures has been verified."""

    text: str
    signatures: tuple[Signature, ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(signature.line for signature in self.signatures)}"


def key_hash(name: str, public_key: bytes) -> bytes:
    """The four bytes by which a signature line of a log names its key."""
    return _key_hash(name, _ALG_ED25519, public_key)


def cosignature_hash(name: str, public_key: bytes) -> bytes:
    """The four bytes by which a cosignature line of a witness names its key."""
    return _key_hash(name, _ALG_COSIGNATURE, public_key)


def sign_head(head: TreeHead, name: str, key: SigningKey) -> str:
    """The signed note of a tree head, with one signature: that of the log."""
    _check_name(name)
    signature = Signature(name, key_hash(name, key.public_key), key.sign(head.text.encode()))
    return str(Note(head.text, (signature,)))


def verify_head(note_text: str, *, name: str, public_key: bytes, origin: str) -> TreeHead:
    """The tree head in a note, once the named key's signature of it and the origin have been checked.

    Raises ``NoteInvalid``; never returns a head that the key did not sign for this origin.
    """
    note = parse_note(note_text)
    own = _signatures_of(note, name, key_hash(name, public_key))
    if not all(verify(public_key, note.text.encode(), signature.value) for signature in own):
        raise NoteInvalid(f"the signature of {name} does not verify")
    head = parse_head(note.text)
    if head.origin != origin:
        raise NoteInvalid(f"the tree head is of the log {show(head.origin)}, not of {show(origin)}")
    return head


def cosign(note_text: str, name: str, key: SigningKey, time_s: int) -> str:
    """The note with a witness's cosignature added, made at ``time_s`` seconds of POSIX time.

    Whether the head continues what the witness saw before is the witness's business; here it must only be a head.
    """
    _check_name(name)
    if type(time_s) is not int or not 0 <= time_s <= TIME_MAX:
        raise InvalidInput(f"a cosignature's time is an integer from 0 to 2**63-1, got {show(time_s)}")
    note = parse_note(note_text)
    parse_head(note.text)
    value = time_s.to_bytes(_TIME_BYTES, "big") + key.sign(_cosigned(note.text, time_s))
    added = Signature(name, cosignature_hash(name, key.public_key), value)
    return str(Note(note.text, (*note.signatures, added)))


def verify_cosignature(note_text: str, *, name: str, public_key: bytes) -> int:
    """The POSIX time at which the named witness cosigned this note; the latest, if it did so more than once.

    Raises ``NoteInvalid`` if it did not, or if any line in its name and with its key does not verify.
    """
    note = parse_note(note_text)
    parse_head(note.text)
    times: list[int] = []
    for signature in _signatures_of(note, name, cosignature_hash(name, public_key)):
        time_s = int.from_bytes(signature.value[:_TIME_BYTES], "big")
        signed = _cosigned(note.text, time_s)
        if time_s > TIME_MAX or not verify(public_key, signed, signature.value[_TIME_BYTES:]):
            raise NoteInvalid(f"the cosignature of {name} does not verify")
        times.append(time_s)
    return max(times)


def parse_note(note_text: str) -> Note:
    """Take a note apart without believing any of it. Refuses, with ``NoteInvalid``, all that is not the format."""
    try:
        size = len(note_text.encode())
    except UnicodeEncodeError as exc:
        raise NoteInvalid("a note is UTF-8 text") from exc
    if size > NOTE_BYTES_MAX:
        raise NoteInvalid(f"a note of {size} bytes, {NOTE_BYTES_MAX} are allowed")
    if _CONTROL.search(note_text):
        raise NoteInvalid("a note holds no control characters but newlines")
    text, blank, tail = note_text.rpartition("\n\n")
    if not (text and blank and tail.endswith("\n")):
        raise NoteInvalid("a note is a text, an empty line and signature lines, each with its newline")
    lines = tail[:-1].split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise NoteInvalid(f"a note with {len(lines)} signatures, {SIGNATURES_MAX} are allowed")
    return Note(text + "\n", tuple(_parse_signature(line) for line in lines))


def parse_head(text: str) -> TreeHead:
    """The tree head that a note's text spells, verified or not."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3]:
        raise NoteInvalid("a tree head has exactly three lines: origin, size, root")
    origin, size_text, root_text, _ = lines
    root = _decode_base64(root_text)
    if not _is_line(origin) or _SIZE.fullmatch(size_text) is None or int(size_text) > SIZE_MAX or len(root) != 32:
        raise NoteInvalid("a tree head is an origin, a decimal size below 2**63 and 32 bytes of base64")
    return TreeHead(origin, int(size_text), root)


def _signatures_of(note: Note, name: str, wanted: bytes) -> list[Signature]:
    """The note's signatures by one key; unknown keys are ignored, even if they share its name or its hash."""
    own = [signature for signature in note.signatures if signature.name == name and signature.key_hash == wanted]
    if not own:
        raise NoteInvalid(f"the note has no signature of {name} with key hash {wanted.hex()}")
    return own


def _parse_signature(line: str) -> Signature:
    match = _SIGNATURE_LINE.fullmatch(line)
    if match is None or not _is_name(match[1]):
        raise NoteInvalid(f"not a signature line: {show(line)}")
    blob = _decode_base64(match[2])
    if len(blob) <= _KEY_HASH_BYTES:
        raise NoteInvalid(f"a signature line without a signature: {show(line)}")
    return Signature(match[1], blob[:_KEY_HASH_BYTES], blob[_KEY_HASH_BYTES:])


def _decode_base64(text: str) -> bytes:
    """Standard base64 in its canonical form: what encoding the result gives back."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise NoteInvalid(f"not base64: {show(text)}") from exc
    if b64encode(data).decode() != text:
        raise NoteInvalid(f"not canonical base64: {show(text)}")
    return data


def _key_hash(name: str, algorithm: bytes, public_key: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + algorithm + public_key)[:_KEY_HASH_BYTES]


def _cosigned(text: str, time_s: int) -> bytes:
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def _check_name(name: str) -> None:
    if not _is_name(name):
        raise InvalidInput(f"a key name is text without spaces and without '+', got {show(name)}")


def _is_name(name: str) -> bool:
    return _is_line(name) and "+" not in name and not any(character.isspace() for character in name)


def _is_line(text: str) -> bool:
    """One line of valid Unicode, not empty, without control characters."""
    if type(text) is not str or not text or "\n" in text or _CONTROL.search(text):
        return False
    return text.isascii() or text.encode(errors="replace").decode() == text
