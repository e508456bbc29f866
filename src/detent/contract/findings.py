"""What is wrong with a contract, all of it at once, and where.

Checks speak of *paths*: keys and positions from the top of the document. Only when something was found does anyone ask
on which line a path stands, so that a good file never pays for the bookkeeping. A document that came from Python has
paths and no lines.

The order is the contract's (WF-106): syntax alone; then structure, in the order of the document; then references and
dependencies, in the order the steps are declared; then cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from detent.canon.late import dataclass
from detent.canon.show import step as path_step
from detent.workflow.errors import ModelOnexError

FINDINGS_MAX: Final = 100
"""Findings that are written out; the rest are counted."""
FAULTS_MAX: Final = 1_000
"""Faults that are kept to be put in order; the rest are counted."""
COMPARISONS_MAX: Final = 20_000
"""Names compared in search of the nearest one, over the whole contract: a hint is not worth a hang."""
ELSEWHERE: Final = "\0"
"""Stands in a message for the place of a related path. No quoted text can hold it: it would be written escaped."""

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of something in its file; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where it stands, and what to do about it. ``line`` 0: the document has no lines."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    code: str = "VALIDATION_ERROR"
    path: str = ""
    """The same place as keys and positions: ``steps[3].run.python``."""

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{self.file}: {self.path}: {self.message}" if self.path else f"{self.file}: {self.message}"


class ContractInvalid(ModelOnexError):
    """A contract cannot be loaded. ``findings`` holds every reason, in order; ``more`` counts those left out."""

    def __init__(self, findings: Sequence[Finding], more: int = 0) -> None:
        lines = [str(finding) for finding in findings]
        if more:
            lines.append(f"and {more} more")
        alone = findings[0].hint if len(findings) == 1 and findings[0].hint else None
        super().__init__("\n".join(lines), context={"errors": lines}, hint=alone)
        self.findings = tuple(findings)
        self.more = more


class Stage(IntEnum):
    """The groups in which findings are listed."""

    STRUCTURE = 0
    REFERENCES = 1
    CYCLES = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding before anyone has looked up its line."""

    path: Path
    message: str
    hint: str = ""
    stage: Stage = Stage.STRUCTURE
    at_key: bool = False
    """The key is meant, not its value."""
    related: tuple[Path, ...] = ()
    """Paths whose places the message names, one for each ``ELSEWHERE`` in it."""
    inner: tuple[int, int] | None = None
    """Line and column inside the text at ``path``, counted from 1."""


class Report:
    """Gathers faults, and names that lie near a wrong one."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.count = 0
        self._comparisons_left = COMPARISONS_MAX

    def add(self, fault: Fault) -> None:
        self.count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)

    def nearest(self, word: object, known: Mapping[str, object] | Sequence[str]) -> str:
        """A hint that names the known word nearest to ``word``; empty when none is near, or when hints are used up."""
        self._comparisons_left -= len(known)
        if type(word) is not str or len(word) > 100 or self._comparisons_left < 0 or self.count > FINDINGS_MAX:
            return ""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a contract that is wrong

        close = get_close_matches(word, list(known), n=1, cutoff=0.6)
        return f"did you mean {close[0]!r}?" if close else ""


class Spot:
    """A place in the document that a check looks at, and where it says what is wrong there."""

    __slots__ = ("path", "report")

    def __init__(self, report: Report, path: Path = ()) -> None:
        self.report = report
        self.path = path

    def at(self, *keys: str | int) -> Spot:
        """A place further in."""
        return Spot(self.report, (*self.path, *keys))

    def fault(
        self,
        message: str,
        hint: str = "",
        *,
        stage: Stage = Stage.STRUCTURE,
        at_key: bool = False,
        related: tuple[Path, ...] = (),
        inner: tuple[int, int] | None = None,
    ) -> None:
        """Say what is wrong here and what to do about it."""
        self.report.add(Fault(self.path, message, hint, stage, at_key, related, inner))


Locate: TypeAlias = Callable[[Sequence[Fault]], tuple[list[Place], list[list[Place]]]]
"""From faults to the place of each, and of each path related to it."""


def invalid(report: Report, name: str, locate: Locate | None) -> ContractInvalid:
    """The error that holds every finding, in the demanded order; ``locate`` finds lines, None: there are none."""
    faults = report.faults
    if locate is None:
        places = [Place(0, 0)] * len(faults)
        related = [[Place(0, 0)] * len(fault.related) for fault in faults]
    else:
        places, related = locate(faults)
    # A stable sort: without lines, what was found first stays first.
    order = sorted(
        range(len(faults)),
        key=lambda index: (
            faults[index].stage,
            *((places[index].line, places[index].column) if faults[index].stage is Stage.STRUCTURE else (0, 0)),
        ),
    )
    findings = [_finding(faults[index], places[index], related[index], name) for index in order[:FINDINGS_MAX]]
    return ContractInvalid(findings, report.count - len(findings))


def path_text(path: Path) -> str:
    """A path as people write it: ``steps[3].run``."""
    return "".join(path_step(key) for key in path).removeprefix(".")


def _finding(fault: Fault, place: Place, related: Sequence[Place], name: str) -> Finding:
    message = fault.message
    for path, other in zip(fault.related, related, strict=True):
        where = f"line {other.line}" if other.line else path_text(path)
        message = message.replace(ELSEWHERE, where, 1)
    return Finding(name, place.line, place.column, message, fault.hint, path=path_text(fault.path))
