"""A whole answer to a request under an idempotency key, as it is kept: status, fields, body, and the jobs that it names.

Packed, because the answer to a thousand jobs repeats itself. Answers of clients in the home's own processes are the id of one job,
as text; the first byte tells the two apart. When content of a job is erased, the answers that name the job go, too (X-171).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from detent.canon import NotCanonical, decode, encode_trusted
from detent.canon.late import NamedTuple
from detent.errors import StoreCorrupt

WHOLE: Final = b"\x01"
"""How a whole answer begins; no id of a job does."""
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024


class KeptAnswer(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    jobs: Sequence[str]
    """The jobs that it names."""

    def pack(self) -> bytes:
        """As it is kept."""
        said = [self.status, dict(self.headers), self.body, list(self.jobs)]
        return WHOLE + zlib.compress(encode_trusted(said), 1)


def read_kept(response: bytes) -> KeptAnswer | None:
    """A whole answer; None for one that is the id of a job. Raises `StoreCorrupt` for one that was damaged."""
    if response[:1] != WHOLE:
        return None
    try:
        unpacker = zlib.decompressobj()
        said = decode(unpacker.decompress(response[1:], UNPACKED_BYTES_MAX), bytes_max=UNPACKED_BYTES_MAX)
        status, headers, body, jobs = said
        kept = KeptAnswer(status, headers, body, jobs)
        whole = type(status) is int and isinstance(headers, dict) and type(body) is bytes and isinstance(jobs, list)
    except (zlib.error, NotCanonical, TypeError, ValueError) as exc:
        raise _damaged() from exc
    if not whole or not unpacker.eof or not all(type(job) is str for job in jobs):
        raise _damaged()
    return kept


def jobs_named(response: bytes) -> Sequence[str]:
    """The jobs that a kept answer names; none where it is damaged."""
    try:
        kept = read_kept(response)
    except StoreCorrupt:
        return ()
    return kept.jobs if kept is not None else (response.decode(errors="replace"),)


def _damaged() -> StoreCorrupt:
    return StoreCorrupt(
        "the answer kept for this idempotency key is damaged",
        hint="run `detent verify`; use another idempotency key to have the work done",
    )
