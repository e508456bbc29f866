"""``append:FILE`` and ``jsonl:FILE``: a file that has each entry once, in order, whenever the run is ended and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from detent.canon.strict_json import JsonValue
from detent.errors import InvariantBroken
from detent.store.content import ContentFiles
from detent.targets.api import Anew, Mark, Nothing, still_due
from detent.targets.disk import DISK, Disk, insist_on_directory
from detent.targets.growing_file import GrowingFile
from detent.targets.render import Render, RenderLines, RenderText


class FileTarget:
    """A destination that is a file. Made by `append_target` and `json_lines_target`."""

    is_recorded = True

    def __init__(self, spec: str, path: Path, render: Render, disk: Disk, anew: Anew | None = None) -> None:
        self.spec = spec
        self._path = path
        self._file = GrowingFile(path, spec, disk, anew)
        self._render = render
        self._next_seq = 0
        self._is_begun = False

    def check(self) -> None:
        """Refuse, with `InvalidInput`, a place that nothing can be written to: better than when there is a run."""
        insist_on_directory(self.spec, self._path)

    def insist_on_room(self) -> None:
        """Refuse, with `DestinationNotEmpty`, what a new run must not begin with."""
        self._file.insist_on_room()

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool:  # noqa: ARG002 - a file does not know its runs
        """Whether the file still has what a run left in it."""
        return recorded is not None and self._file.holds(recorded)

    def open(self, run_id: str, recorded: Mark | None) -> int:  # noqa: ARG002 - a file does not know its runs
        """Cut off what was written and not recorded. A run without a record begins at the end of the file, or makes it."""
        self.close()
        self._file.open(recorded)
        self._next_seq = 0 if recorded is None else recorded.next_seq
        self._is_begun = recorded is not None
        return self._next_seq

    def begin(self) -> Mark:
        """Where the file ends now."""
        self._is_begun = True
        return Mark(self._next_seq, self._file.offset, self._file.tail_digest())

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Append a batch; it is synced when this returns."""
        if not self._is_begun:
            raise InvariantBroken(f"{self.spec}: begin() must be recorded before the first write")
        due = still_due(self._next_seq, first_seq, values)
        pieces = self._render(self._next_seq, due)
        if any(not isinstance(value, Nothing) for value in due):
            self._file.append(pieces)
        self._next_seq += len(due)
        return Mark(self._next_seq, self._file.offset, self._file.tail_digest())

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._file.close()
        self._is_begun = False


def append_target(
    spec: str, path: Path, content: ContentFiles | None = None, disk: Disk = DISK, *, anew: Anew | None = None
) -> FileTarget:
    """Text and files, one after the other. ``content`` is where the bytes of files are."""
    return FileTarget(spec, path, RenderText(spec, content), disk, anew)


def json_lines_target(
    spec: str,
    path: Path,
    *,
    numbered: bool = False,
    disk: Disk = DISK,
    anew: Anew | None = None,
    seqs: Sequence[int] | None = None,
) -> FileTarget:
    """One line of JSON for each entry; ``numbered`` puts the seq beside the value, ``seqs`` says which those are."""
    return FileTarget(spec, path, RenderLines(spec, numbered=numbered, seqs=seqs), disk, anew)
