"""The turn of a worker on another machine: what it says, and what it is answered, as canonical CBOR.

One request does everything that a supervisor does in one commit: it reports what has finished, says which leases it holds, asks for
more jobs, and waits at the server while there are none. The ability to get work and the sign of life are the same request, so a worker
cannot seem alive and be deaf.

The rules:

* Turns have numbers that rise, over every start of a worker. The same number again gets the same answer.
* A worker names every lease that it holds. A lease that it was granted and does not name is granted again: its answer was lost.
* Everything is bounded here, on both sides. Neither side takes a field that it does not know.
* Two versions are spoken: this one and the one before. A server answers in the version of the turn; a worker whose server does not know
  its version goes on in the older one. Version 1 has no `pool` and `labels`, and shows no output of running jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from detent.canon import DIGEST_BYTES, NotCanonical, decode, encode
from detent.canon.grammar import LABEL, LABEL_HINT
from detent.canon.show import show
from detent.errors import InvalidInput

PROTOCOL: Final = 2
PROTOCOLS: Final = (1, 2)
"""The versions that this side speaks; a worker and a server that are one release apart share one."""
MEDIA_TYPE: Final = "application/cbor"
TURN_BYTES_MAX: Final = 16 * 1024 * 1024
LEASES_MAX: Final = 1_024
REPORTS_MAX: Final = 256
WANTED_MAX: Final = 256
WAIT_MS_MAX: Final = 20_000
"""Below the idle limit of every proxy."""
INLINE_BYTES_MAX: Final = 16 * 1024
"""An order or a value up to this size comes with its grant."""
PIECES_MAX: Final = 1_024
LOG_BYTES_MAX: Final = 64 * 1024
LOGS_MAX: Final = 64
TEXT_BYTES_MAX: Final = 1_000
TURN_MAX: Final = 2**53
DIRECTIVES: Final = frozenset({"drain", "upgrade", "retire"})
STREAMS: Final = ("stdout", "stderr")
PROGRESS: Final = "progress"
_BOOT: Final = re.compile(r"[0-9a-f]{16}")
_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NAMED: Final = f"a name of {LABEL_HINT}"
LABELS_MAX: Final = 64


class Beat(NamedTuple):
    """A lease that the worker holds."""

    job_id: str
    lease_id: bytes


class Ended(NamedTuple):
    """An attempt that ended without a report: interrupted, or its process was lost."""

    job_id: str
    lease_id: bytes
    code: str
    """INTERRUPTED, WORKER_LOST, or why this worker cannot run it: CODE_MISMATCH, ENV_MISMATCH, KIND_UNSUPPORTED, RESOURCES_SHORT."""


class Log(NamedTuple):
    """What a watched job has printed to a stream, from an offset on; or how far it is, as JSON: a share from 0 to 1 and a message."""

    lease_id: bytes
    stream: str
    offset: int
    data: bytes


class Watch(NamedTuple):
    """A lease whose output is looked at now, and how much of it the server has.

    A row whose sizes are both the largest asks for the progress of the job and for no output: servers and workers that know nothing of
    progress neither send nor miss any.
    """

    lease_id: bytes
    stdout_bytes: int
    stderr_bytes: int

    @classmethod
    def of_progress(cls, lease_id: bytes) -> Watch:
        """The row that asks for the progress of a job."""
        return cls(lease_id, TURN_MAX, TURN_MAX)

    @property
    def is_of_progress(self) -> bool:
        """Whether it asks for progress."""
        return self.stdout_bytes == self.stderr_bytes == TURN_MAX


ENDS: Final = frozenset(
    {"INTERRUPTED", "WORKER_LOST", "CODE_MISMATCH", "ENV_MISMATCH", "KIND_UNSUPPORTED", "RESOURCES_SHORT"}
)
UNSUITED: Final = ENDS - {"INTERRUPTED", "WORKER_LOST"}
"""Ends after which the worker is not given that job again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a worker says."""

    boot: str
    """This start of the worker."""
    turn: int
    wanted: int = 0
    wait_ms: int = 0
    draining: bool = False
    beats: tuple[Beat, ...] = ()
    reports: tuple[tuple[bytes, bytes], ...] = ()
    """Signed reports, each with the lease it is about."""
    content: tuple[bytes, ...] = ()
    """Small pieces that the reports name."""
    ended: tuple[Ended, ...] = ()
    logs: tuple[Log, ...] = ()
    slots: int = 0
    version: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    pool: str | None = None
    """The pool that the worker works in."""
    labels: tuple[str, ...] = ()
    """What its machine is."""
    protocol: int = PROTOCOL

    def encode(self) -> bytes:
        """Canonical bytes, in the version that the turn says."""
        newer = {} if self.protocol < 2 else {"pool": self.pool, "labels": list(self.labels)}
        return encode(
            {
                "protocol": self.protocol,
                "boot": self.boot,
                "turn": self.turn,
                "wanted": self.wanted,
                "wait_ms": self.wait_ms,
                "draining": self.draining,
                "beats": [list(beat) for beat in self.beats],
                "reports": [list(report) for report in self.reports],
                "content": list(self.content),
                "ended": [list(ended) for ended in self.ended],
                "logs": [] if self.protocol < 2 else [list(log) for log in self.logs],
                "slots": self.slots,
                "version": self.version,
                "resources": dict(self.resources),
                **newer,
            }
        )


def protocol_of(data: bytes) -> tuple[int, dict[str, Any]]:
    """The version of the protocol that a turn is written in, and its fields; `InvalidInput` for what is not a turn."""
    fields = _map(data, "a turn")
    protocol = fields.get("protocol")
    if type(protocol) is not int:
        raise InvalidInput("a turn says the version of its protocol")
    return protocol, fields


def read_turn(fields: dict[str, Any]) -> Turn:
    """A turn, checked whole; `InvalidInput` says which field is wrong."""
    protocol = fields["protocol"]
    checks = _TURN if protocol >= 2 else _TURN_1
    _exact(fields, frozenset({*checks, "protocol"}), "a turn")
    said = {name: check(name, fields[name]) for name, check in checks.items()}
    return Turn(**said, protocol=protocol) if protocol >= 2 else Turn(**{**said, "logs": ()}, protocol=protocol)


class Granted(NamedTuple):
    """A lease, and what its attempt needs."""

    grant: tuple[Any, ...]
    """The fields of `detent.kernel.Grant`, in order."""
    lease_ms: int
    """For how long the lease holds from its grant, and from each turn that extends it."""
    order: bytes | None
    """The sealed order; None where it is fetched as content."""
    values: tuple[tuple[str, bytes | None, bytes | None], ...]
    """The values of results that the order names: each by its name, as bytes or by the digest of content."""
    files: tuple[bytes, ...]
    """Digests of the files that order and values name."""
    left: Mapping[str, Any] | None = None
    earlier: bytes | None = None
    retried: tuple[str, ...] = ()
    refusal: tuple[str, str, str] | None = None
    """Category, code and message of a failure that keeps the attempt from beginning."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answers."""

    turn: int
    now_ms: int
    waited_ms: int = 0
    """How long after the turn arrived its grants were made. A repeat of the answer says the same."""
    results: tuple[tuple[bytes, str], ...] = ()
    """For each report or end, by its lease: OK, or why it was refused."""
    missing: tuple[bytes, ...] = ()
    """Content that reports name and that is not there: to be sent first, with the reports once more."""
    revoked: tuple[tuple[bytes, str], ...] = ()
    grants: tuple[Granted, ...] = ()
    watch: tuple[Watch, ...] = ()
    """The leases whose output is looked at now."""
    directive: str | None = None
    protocol: int = PROTOCOL

    def encode(self) -> bytes:
        """Canonical bytes, in the version that the answer says."""
        return encode(
            {
                "protocol": self.protocol,
                "turn": self.turn,
                "now_ms": self.now_ms,
                "waited_ms": self.waited_ms,
                "results": [list(one) for one in self.results],
                "missing": list(self.missing),
                "revoked": [list(one) for one in self.revoked],
                "grants": [_listed(one) for one in self.grants],
                "watch": [] if self.protocol < 2 else [list(one) for one in self.watch],
                "directive": self.directive,
            }
        )


def read_answer(data: bytes) -> Answer:
    """An answer, checked whole; `InvalidInput` for anything else."""
    fields = _map(data, "an answer")
    _exact(fields, frozenset({*_ANSWER, "protocol"}), "an answer")
    if fields["protocol"] not in PROTOCOLS:
        raise InvalidInput("the server answers in another version of the protocol", code="PROTOCOL_UNSUPPORTED")
    said = {name: check(name, fields[name]) for name, check in _ANSWER.items()}
    return Answer(**said, protocol=fields["protocol"])


# -- checks --------------------------------------------------------------------------------------------------------------

Check = Callable[[str, Any], Any]


def _fault(name: str, what: str, value: object) -> InvalidInput:
    return InvalidInput(f"{name} must be {what}, not {show(value)}")


def _integer(most: int) -> Check:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise _fault(name, f"a whole number from 0 to {most}", value)
        return value

    return check


def _text(bytes_max: int = TEXT_BYTES_MAX) -> Check:
    def check(name: str, value: Any) -> str:
        if type(value) is not str or len(value.encode("utf-8", "replace")) > bytes_max:
            raise _fault(name, f"a text of at most {bytes_max} bytes", value)
        return value

    return check


def _matching(form: re.Pattern[str], what: str) -> Check:
    def check(name: str, value: Any) -> str:
        if type(value) is not str or not form.fullmatch(value):
            raise _fault(name, what, value)
        return value

    return check


def _boolean(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise _fault(name, "true or false", value)
    return value


def _bytes(bytes_max: int) -> Check:
    def check(name: str, value: Any) -> bytes:
        if type(value) is not bytes or len(value) > bytes_max:
            raise _fault(name, f"at most {bytes_max} bytes", value)
        return value

    return check


def _digest(name: str, value: Any) -> bytes:
    if type(value) is not bytes or len(value) != DIGEST_BYTES:
        raise _fault(name, f"a digest of {DIGEST_BYTES} bytes", value)
    return value


def _one_of(words: frozenset[str] | tuple[str, ...]) -> Check:
    def check(name: str, value: Any) -> str:
        if type(value) is not str or value not in words:
            raise _fault(name, f"one of {', '.join(sorted(words))}", value)
        return value

    return check


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _many(check: Check, most: int) -> Check:
    def checked(name: str, value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > most:
            raise _fault(name, f"a list of at most {most}", value)
        return tuple([check(f"{name}[{place}]", one) for place, one in enumerate(value)])

    return checked


def _row(make: Callable[..., Any], *checks: Check) -> Check:
    def checked(name: str, value: Any) -> Any:
        if type(value) is not list or len(value) != len(checks):
            raise _fault(name, f"a list of {len(checks)}", value)
        return make(
            [check(f"{name}[{place}]", one) for place, (check, one) in enumerate(zip(checks, value, strict=True))]
        )

    return checked


def _counts(name: str, value: Any) -> dict[str, int]:
    if type(value) is not dict or len(value) > 32:
        raise _fault(name, "a map of at most 32 counts", value)
    return {_text(64)(name, key): _integer(2**31)(f"{name}.{key}", one) for key, one in value.items()}


def _plain(name: str, value: Any) -> Mapping[str, Any]:
    if type(value) is not dict or len(value) > 16:
        raise _fault(name, "a small map", value)
    return value


def _listed(granted: Granted) -> list[Any]:
    """A grant as plain lists."""
    return [
        list(granted.grant),
        granted.lease_ms,
        granted.order,
        [list(one) for one in granted.values],
        list(granted.files),
        None if granted.left is None else dict(granted.left),
        granted.earlier,
        list(granted.retried),
        None if granted.refusal is None else list(granted.refusal),
    ]


_ID: Final = _text(200)
_LEASE: Final = _digest
_TURN_1: Final[Mapping[str, Check]] = {
    "boot": _matching(_BOOT, "16 hex digits"),
    "turn": _integer(TURN_MAX),
    "wanted": _integer(WANTED_MAX),
    "wait_ms": _integer(WAIT_MS_MAX),
    "draining": _boolean,
    "beats": _many(_row(Beat._make, _ID, _LEASE), LEASES_MAX),
    "reports": _many(_row(tuple, _LEASE, _bytes(TURN_BYTES_MAX)), REPORTS_MAX),
    "content": _many(_bytes(TURN_BYTES_MAX), PIECES_MAX),
    "ended": _many(_row(Ended._make, _ID, _LEASE, _one_of(ENDS)), LEASES_MAX),
    "logs": _many(_row(tuple, _ID, _one_of(STREAMS), _integer(TURN_MAX), _bytes(LOG_BYTES_MAX)), LOGS_MAX),
    "slots": _integer(1_024),
    "version": _text(64),
    "resources": _counts,
}
_TURN: Final[Mapping[str, Check]] = {
    **_TURN_1,
    "logs": _many(
        _row(Log._make, _LEASE, _one_of((*STREAMS, PROGRESS)), _integer(TURN_MAX), _bytes(LOG_BYTES_MAX)), LOGS_MAX
    ),
    "pool": _optional(_matching(LABEL, _NAMED)),
    "labels": _many(_matching(LABEL, _NAMED), LABELS_MAX),
}
_GRANT: Final = (
    *(_ID, _ID, _optional(_ID), _integer(2**63), _integer(2**63), _LEASE, _integer(2**64), _ID, _digest, _digest),
    *(_text(200), _bytes(DIGEST_BYTES)),
)
_ANSWER: Final[Mapping[str, Check]] = {
    "turn": _integer(TURN_MAX),
    "now_ms": _integer(2**63),
    "waited_ms": _integer(2**31),
    "results": _many(_row(tuple, _LEASE, _matching(_CODE, "a code")), REPORTS_MAX + LEASES_MAX),
    "missing": _many(_digest, 100_000),
    "revoked": _many(_row(tuple, _LEASE, _matching(_CODE, "a code")), LEASES_MAX),
    "grants": _many(
        _row(
            Granted._make,
            _row(tuple, *_GRANT),
            _integer(2**53),
            _optional(_bytes(INLINE_BYTES_MAX)),
            _many(_row(tuple, _text(200), _optional(_bytes(INLINE_BYTES_MAX)), _optional(_digest)), 100_000),
            _many(_digest, 100_000),
            _optional(_plain),
            _optional(_digest),
            _many(_text(64), 64),
            _optional(_row(tuple, _text(64), _text(64), _text(4_096))),
        ),
        LEASES_MAX,
    ),
    "watch": _many(_row(Watch._make, _LEASE, _integer(TURN_MAX), _integer(TURN_MAX)), LEASES_MAX),
    "directive": _optional(_one_of(DIRECTIVES)),
}


def _map(data: bytes, what: str) -> dict[str, Any]:
    try:
        fields = decode(data, bytes_max=TURN_BYTES_MAX)
    except NotCanonical as exc:
        raise InvalidInput(f"{what} is canonical CBOR: {exc}") from exc
    if not isinstance(fields, dict):
        raise InvalidInput(f"{what} is a map")
    return fields


def _exact(fields: Mapping[str, Any], names: frozenset[str], what: str) -> None:
    if fields.keys() != names:
        other = sorted(fields.keys() ^ names)
        raise InvalidInput(f"{what} has other fields than it must: {', '.join(map(show, other[:5]))}")
