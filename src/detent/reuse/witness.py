"""What work runs in, as it is looked at from outside: its code and its packages, and whether they are what its order was made from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.executor.annotations import PARSING
from detent.executor.own_targets import COMPUTE_CHUNK
from detent.jobs.order import Call, Order
from detent.reuse.ingredients import (
    CodeDigest,
    CodeReader,
    Surroundings,
    around,
    env_version,
    of_surroundings,
    source_digest,
    together,
)

LOOK_SECONDS: Final = 0.2
"""How long what was read of the user's source is taken for granted."""
CODED: Final = frozenset({"python", "map"})
"""Kinds that call functions of the user's own project."""
CODE_MISMATCH: Final = "CODE_MISMATCH"
ENV_MISMATCH: Final = "ENV_MISMATCH"


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What is said of an attempt by those who watched it from outside."""

    env_version: str
    stale: bool = False
    """Its code, its packages or its tools are not those that its order was made from."""


class CodeWitness:
    """Reads the code that orders name. Its own thread's at a time."""

    def __init__(self) -> None:
        self._readers: dict[str | None, tuple[float, CodeReader]] = {}
        self._sources: dict[str, CodeDigest] = {}
        self.env_version = env_version({})

    def refresh(self) -> None:
        """Forget what was read of source that has been edited since: the next work key describes the code as it is now."""
        for base in [base for base, held in self._readers.items() if not held[1].is_current]:
            del self._readers[base]

    def witness(self, order: Order, since: float) -> Witnessed:
        """What an attempt at an order ran in, and whether that and its code are still what the order was made from.

        By a look not older than ``since``. What came of an order that has changed meanwhile may be of either; it would stand
        under the key of the one that was meant, and answer for that.
        """
        surroundings, difference = self._compared(order, since)
        version = self.env_version if surroundings is None else surroundings.env_version
        return Witnessed(version, difference is not None)

    def mismatch(self, order: Order, since: float) -> str | None:
        """Why what is here would not be the work that an order was made for: CODE_MISMATCH, ENV_MISMATCH; None where it is."""
        return self._compared(order, since)[1]

    def _compared(self, order: Order, since: float) -> tuple[Surroundings | None, str | None]:
        """What an order would run in, as far as that can be read, and what of it is not what the order was made from."""
        call, made_from = order.call, order.origin.ingredients
        keyed = bool(made_from) and made_from.get("code", "") is not None
        try:
            if (called := _chunk_calls(call)) is None:
                code = self._code(call, made_from.get("version"), since if keyed else None)
            else:
                code = self.together(called, call.base)
        except DetentError:
            return None, CODE_MISMATCH if keyed else None
        surroundings = surroundings_of(call, code)
        if not keyed:
            return surroundings, None
        digest = None if code is None or code.digest is None else digest_text(code.digest)
        if digest != made_from.get("code"):
            return surroundings, CODE_MISMATCH
        return surroundings, None if surroundings.ingredients() == of_surroundings(made_from) else ENV_MISMATCH

    def env_version_of(self, called: Iterable[str], base: str | None) -> str:
        """What calling these functions runs in: the interpreter, and the packages that they reach."""
        try:
            return around(self.together(called, base)).env_version
        except DetentError:
            return self.env_version

    def together(
        self, called: Iterable[str], base: str | None, version: str | None = None, since: float | None = None
    ) -> CodeDigest:
        """The code of several functions as one."""
        with PARSING:
            reader = self._reader(base, since)
            return together({name: reader.digest(name, version=version) for name in called})

    def _code(self, call: Call, version: str | None, since: float | None = None) -> CodeDigest | None:
        if call.kind == "code":
            known = self._sources.get(call.target)
            if known is None:
                with PARSING:
                    known = self._sources[call.target] = source_digest(call.target)
            return known
        if call.kind not in CODED:
            return None
        if call.kind != "map":
            return self.together((str(call.target),), call.base, version, since)
        from detent.contract.map_run import called  # noqa: PLC0415 - a mapped step has loaded a contract

        return self.together(called(call.target), call.base, version, since)

    def _reader(self, base: str | None, since: float | None) -> CodeReader:
        now = time.monotonic()
        looked, reader = self._readers.get(base, (0.0, None))
        if reader is None or looked < (now - LOOK_SECONDS if since is None else since):
            reader = CodeReader(base)
            self._readers[base] = (now, reader)
        return reader


def surroundings_of(call: Call, code: CodeDigest | None) -> Surroundings:
    """What work runs in at this moment: a platform job in its runner, all else in the interpreter with what its code reaches."""
    job_type = call.target.get("job_type") if call.kind == "job" else None
    if job_type is None:
        return around(code)
    from detent.executor.runners import tools  # noqa: PLC0415 - most runs have no platform jobs

    if job_type not in tools.NAMES:
        return around(None)  # It is refused where it is run.
    return Surroundings(tools.env_version(job_type), runner=tools.runner_of(job_type), tools=tools.versions(job_type))


def _chunk_calls(call: Call) -> tuple[str, ...] | None:
    """The functions of the user's own that a chunk of an ordered run calls; None for any other call."""
    if call.kind != "python" or call.target != COMPUTE_CHUNK:
        return None
    work = call.arguments[0]
    return tuple(name for name in (work["compute"], work.get("filter")) if name is not None)
