"""Decides what an execution was, from what was seen outside the guest (C1 to C6).

The order is the whole rule: violation, then limits, then an answer that is not valid, then the user's own error. Among the
limits, those come first that explain the others: a job that met its memory limit may well have run out of time too.
The guest's exit status and signal decide nothing but the wording: it can choose both, SIGSYS and SIGKILL included.
Nothing a guest says, returns or does can lead to INTERNAL_ERROR, which is tried again: that is kept for a jail that could not be
built, or that went with the process that built it. A jail whose own first process ends under a job is lost to that job.

Reads what a guest said on its result pipe: a value, or an exception. All of it is the guest's word, so all of it is
parsed strictly, bounded, and shown as text; the traceback is put together here, from places, never from the guest's text.

Explains that a missing package is installed on the host but not in the sandbox; ``No module named`` does not tell.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from detent.canon import NotStrictJson, json_decode
from detent.errors import registered
from detent.executor.sandbox.model import Evidence, Execution, Raised, Stream
from detent.jobs.bounds import DEFAULT_BOUNDS, bound_text
from detent.jobs.status import ErrorCategory

PYTHON_EXCEPTION: Final = "PYTHON_EXCEPTION"
EXITED: Final = "EXITED"
KILLED: Final = "KILLED_BY_SIGNAL"
RESULT_INVALID: Final = "RESULT_INVALID"
NAME_INVALID: Final = "ARTIFACT_NAME_INVALID"

_LIMITS: Final = (
    ("memory", "LIMIT_MEMORY", "used more memory than it may"),
    ("processes", "LIMIT_PROCESSES", "started more processes than it may"),
    ("disk", "LIMIT_DISK", "filled the space or the number of files it may have"),
    ("cpu", "LIMIT_CPU", "used up its processor time"),
    ("wall", "LIMIT_WALL", "used up its time"),
    ("output", "LIMIT_OUTPUT", "returned more than it may"),
    ("artifacts", "LIMIT_ARTIFACTS", "left more files than it may"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the supervisor, init and the kernel saw; nothing here is the guest's word but ``raised``."""

    status: int | None = None
    stop: str | None = None
    """Why init ended the job, if it did."""
    evidence: tuple[Evidence, ...] = ()
    oom_kills: int = 0
    process_refusals: int = 0
    memory_bytes_peak: int = 0
    memory_bytes_max: int | None = None
    """Set where no control group counts memory: then a peak at the limit is what a counter would have said."""
    disk_full: bool = False
    result_cut: bool = False
    too_many_files: bool = False
    escaping_file: str | None = None
    """Name of an output that is not a plain file, or that points elsewhere."""
    invalid_file: str | None = None
    result_fault: str | None = None
    """Why the result is not strict JSON."""
    raised: Raised | None = None
    lost: str | None = None
    """Why the jail could not be built, or how it was lost."""
    lost_running: bool = False
    """Its first process ended in the middle of the job, with everything around it alive."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Category None is success."""

    category: ErrorCategory | None
    code: str | None
    message: str

    @property
    def timed_out(self) -> bool:
        """Deadlines are shown as TIMED_OUT, every other limit as FAILED (X-146)."""
        return self.code in {"LIMIT_WALL", "LIMIT_CPU"}


def classify(facts: Facts) -> Verdict:
    """The one verdict on an execution."""
    return (
        _violation(facts)
        or _limit(facts)
        or _lost(facts)
        or _invalid(facts)
        or _user_error(facts)
        or Verdict(None, None, "done")
    )


def _violation(facts: Facts) -> Verdict | None:
    seen = next((one for one in facts.evidence if one.kind == "violation"), None)
    if seen is not None:
        where = f" ({seen.path})" if seen.path else ""
        return _registered("SANDBOX_VIOLATION", f"tried to {seen.what}: {seen.syscall}{where}")
    if facts.escaping_file is not None:
        return _registered("SANDBOX_VIOLATION", f"left something other than a plain file: {facts.escaping_file!r}")
    return None


def _limit(facts: Facts) -> Verdict | None:
    met = {one.what for one in facts.evidence if one.kind == "limit"}
    if facts.stop is not None:
        met.add(facts.stop)
    if facts.oom_kills or (facts.memory_bytes_max is not None and facts.memory_bytes_peak >= facts.memory_bytes_max):
        met.add("memory")
    for seen, name in (
        (facts.process_refusals, "processes"),
        (facts.disk_full, "disk"),
        (facts.result_cut, "output"),
        (facts.too_many_files, "artifacts"),
    ):
        if seen:
            met.add(name)
    for name, code, message in _LIMITS:
        if name in met:
            return _registered(code, message)
    return None


def _lost(facts: Facts) -> Verdict | None:
    if facts.lost is None:
        return None
    return _registered("SANDBOX_LOST" if facts.lost_running else "SANDBOX_FAILED", facts.lost)


def _invalid(facts: Facts) -> Verdict | None:
    if facts.invalid_file is not None:
        return Verdict(ErrorCategory.VALIDATION_ERROR, NAME_INVALID, facts.invalid_file)
    if facts.result_fault is not None:
        return Verdict(ErrorCategory.VALIDATION_ERROR, RESULT_INVALID, facts.result_fault)
    return None


def _user_error(facts: Facts) -> Verdict | None:
    category = ErrorCategory.USER_CODE_ERROR
    if facts.raised is not None:
        return Verdict(category, PYTHON_EXCEPTION, f"{facts.raised.type}: {facts.raised.message}")
    if facts.status is None or facts.status == 0:
        return None
    if os.WIFSIGNALED(facts.status):
        number = os.WTERMSIG(facts.status)
        return Verdict(category, KILLED, f"ended by signal {number}")
    return Verdict(category, EXITED, f"ended with exit status {os.WEXITSTATUS(facts.status)}")


def _registered(code: str, message: str) -> Verdict:
    return Verdict(ErrorCategory(registered(code).category or ""), code, message)


STORY_BYTES_MAX: Final = 256 * 1024
"""Of an exception as the guest tells it; more than its own bounds allow."""
_RAISED, _RETURNED = b"E", b"R"
_CAUSES_MAX, _FRAMES_MAX, _TEXT_MAX = 16, 200, 1000
_PLACE_MAX: Final = 1 << 31
"""Of a line or a column; no source that a job may have reaches it, and every record can hold it."""


class Told(NamedTuple):
    """What was said: a value as strict JSON bytes, or an exception, or why it is neither."""

    result: bytes | None
    raised: Raised | None
    fault: str | None


def read_python(data: bytes, *, source: str, filename: str) -> Told:
    """What the guest runner said about a job of Python source."""
    if not data:
        return Told(None, None, None)
    kind, rest = data[:1], data[1:]
    if kind == _RETURNED:
        return read_value(rest)
    if kind != _RAISED:
        return Told(None, None, "the result is not one that the runner writes")
    head, _, tail = rest.partition(b"\n")
    try:
        chain = _chain(json_decode(head, name="error"))
        message = json_decode(tail, name="message") if tail else "<no message: it did not come in time>"
    except (NotStrictJson, _Malformed) as exc:
        return Told(None, None, f"the error is not one that the runner writes: {exc}")
    text = message if isinstance(message, str) else "<no message: it is not text>"
    return Told(None, _raised(chain, text, source, filename), None)


def read_value(data: bytes) -> Told:
    """A value as strict JSON, also from an untrusted writer."""
    if not data:
        return Told(None, None, None)
    try:
        json_decode(data, name="result")
    except NotStrictJson as exc:
        return Told(None, None, str(exc))
    return Told(data, None, None)


def cut_stream(data: bytes, *, bytes_max: int, truncated: bool) -> Stream:
    """At most ``bytes_max`` bytes, not ending inside a character if something was cut off (X-147)."""
    truncated = truncated or len(data) > bytes_max
    kept = data[:bytes_max]
    if truncated:
        # A character's first byte says how many follow; look back at most three.
        for back in range(1, min(4, len(kept)) + 1):
            byte = kept[-back]
            if byte >= 0xC0:
                wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                kept = kept[:-back] if wanted > back else kept
            if byte < 0x80 or byte >= 0xC0:
                break
    return Stream(kept, truncated)


class _Malformed(Exception):
    """The guest's story has another shape than the runner's."""


class _Link(NamedTuple):
    type: str
    frames: list[tuple[str, int, int, str]]
    syntax: tuple[int, int] | None


def _chain(value: Any) -> list[_Link]:
    links = value.get("chain") if isinstance(value, dict) else None
    if not isinstance(links, list) or not 0 < len(links) <= _CAUSES_MAX:
        raise _Malformed("it has no chain of exceptions")
    return [_link(link) for link in links]


def _link(value: Any) -> _Link:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise _Malformed("an exception has no type")
    frames = value.get("frames")
    if not isinstance(frames, list) or len(frames) > _FRAMES_MAX:
        raise _Malformed("an exception has no list of places")
    places = []
    for frame in frames:
        if not isinstance(frame, list) or [type(part) for part in frame] != [str, int, int, str]:
            raise _Malformed("a place is not file, line, column, name")
        if not (0 <= frame[1] <= _PLACE_MAX and 0 <= frame[2] <= _PLACE_MAX):
            raise _Malformed("a place is not in any file")
        places.append((frame[0][:_TEXT_MAX], frame[1], frame[2], frame[3][:_TEXT_MAX]))
    syntax = value.get("syntax")
    if syntax is None:
        return _Link(value["type"][:_TEXT_MAX], places, None)
    if not isinstance(syntax, list) or [type(part) for part in syntax] != [int, int]:
        raise _Malformed("a syntax error is not line, column")
    if not (0 <= syntax[0] <= _PLACE_MAX and 0 <= syntax[1] <= _PLACE_MAX):
        raise _Malformed("a syntax error is not in any file")
    return _Link(value["type"][:_TEXT_MAX], places, (syntax[0], syntax[1]))


def _raised(chain: list[_Link], message: str, source: str, filename: str) -> Raised:
    lines = source.splitlines()
    message = bound_text(message, DEFAULT_BOUNDS.max_log_message_bytes).text
    text: list[str] = []
    for link in reversed(chain[1:]):
        text += [*_frame_lines(link, lines, filename), link.type, "", "which led to:", ""]
    text += [*_frame_lines(chain[0], lines, filename), f"{chain[0].type}: {message}" if message else chain[0].type]
    traceback = bound_text("\n".join(text), DEFAULT_BOUNDS.max_error_details_bytes - 4096, keep_end=True).text
    line, column = _place(chain[0], lines, filename)
    return Raised(chain[0].type, message, traceback, line, column)


def _place(link: _Link, lines: list[str], filename: str) -> tuple[int | None, int | None]:
    """Line and column in the job's own source: of the syntax error, or of the innermost call made there."""
    if link.syntax is not None and 0 < link.syntax[0] <= len(lines) + 1:
        return link.syntax[0], max(1, link.syntax[1])
    for file, line, column, _ in reversed(link.frames):
        if file == filename and 0 < line <= len(lines):
            return line, _characters(lines[line - 1], column)
    return None, None


def _characters(line: str, column: int) -> int | None:
    """A column counted in bytes of UTF-8, as the interpreter does, counted in characters."""
    if column <= 0:
        return None
    return len(line.encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore")) + 1


def _frame_lines(link: _Link, lines: list[str], filename: str) -> list[str]:
    if not link.frames:
        return []
    text = ["Traceback (most recent call last):"]
    for file, line, _, name in link.frames:
        text.append(f'  File "{file}", line {line}, in {name}' if line else "  ...")
        if file == filename and 0 < line <= len(lines):
            text.append("    " + lines[line - 1].strip()[:_TEXT_MAX])
    return text


NOT_INSIDE: Final = "the packages of this environment are not in the sandbox; a `python` step has them"
_MISSING: Final = re.compile(r"No module named '([A-Za-z_][A-Za-z0-9_]{0,99})'")


def message_of(execution: Execution) -> str:
    """The message of what the user's own code came to, with what the code cannot know."""
    if execution.raised is None or not is_outside(execution.raised):
        return execution.message
    return f"{execution.message} ({NOT_INSIDE})"


def is_outside(raised: Raised) -> bool:
    """Whether a module was missing that this process would find. Of all others only the code itself knows what they are."""
    match = _MISSING.fullmatch(raised.message) if raised.type == "ModuleNotFoundError" else None
    if match is None or match[1] in sys.stdlib_module_names:
        return False
    try:
        return find_spec(match[1]) is not None  # Nothing is imported: the name has no dots.
    except (ImportError, ValueError):
        return False
