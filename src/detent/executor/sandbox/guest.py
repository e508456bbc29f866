"""What runs inside the jail as the guest: takes one job, runs the user's code, reports the result.

Everything said here is the guest's own word, since the user's code shares this process: it is a result, or a story about
an exception, and is read outside with suspicion. The exit status, the time, the memory and the files are others' to say.

An exception is reported in two steps. First its type and where it was raised, for which no line of the user's code has to
run; then its message, for which one may (``__str__``), and which may never come. Standard library only, and what makes JSON
of results, which needs no more.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import sys
import threading
import types
from typing import Any

from detent.executor.json_form import NoJsonForm, json_form

RAISED, RETURNED = b"E", b"R"
FRAMES_MAX = 60
CAUSES_MAX = 8
MESSAGE_CHARS_MAX = 8_192
NAME_CHARS_MAX = 200
PLACE_MAX = 1 << 31
MESSAGE_SECONDS = 0.25
STATUS_RAISED = 1


def run(data: bytes, result: int) -> None:
    """Run a job and leave; never returns."""
    job = json.loads(data)
    os.environ.update(job["env"])
    sys.argv = [job["filename"]]
    sys.path += job["library_paths"]
    os.chdir(job["directory"])
    if job["argv"] is not None:
        _execute(job, result)
    module = _module(job)
    # Under this name the user's code would otherwise find the file that started this process.
    sys.modules["__main__"] = module
    status, said = _outcome(job, module, result)
    _send(result, said)
    _tidy(module)
    os._exit(status)


def _module(job: dict[str, Any]) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__file__ = job["filename"]
    return module


def _outcome(job: dict[str, Any], module: types.ModuleType, result: int) -> tuple[int, bytes]:
    """The exit status and what is left to report; an exception is reported at once."""
    try:
        text = json.dumps(_form(_call(job, module)), allow_nan=False, separators=(",", ":"))
        return 0, RETURNED + text.encode()
    except SystemExit as exc:
        status = _exit_status(exc)
        return status, b"" if status else RETURNED + b"null"
    except BaseException as exc:  # noqa: BLE001  # any exception of the user's code is its outcome
        _send(result, RAISED + _encode(_story(exc, job["filename"])) + b"\n")
        return STATUS_RAISED, _encode(_message(exc))


def prepare() -> None:
    """Everything that needs no job: streams, an empty environment, no module of ours in sight.

    Then a rehearsal. The memory of a fresh fork is copied page by page as it is first written; what a job's beginning
    and end write is written now, while no job waits.
    """
    for name in [name for name in sys.modules if name == "detent" or name.startswith("detent.")]:
        del sys.modules[name]
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(number, "wb", closefd=False)
        stream = io.TextIOWrapper(  # Lines as they are printed: a client may be following them.
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8")
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    example = {
        "source": "import math\ndef main(**x):\n    return [1, 2.5, 'a', x]\n",
        "filename": "main.py",
        "entry": "main",
        "parameters": {"x": [None, True, "text"]},
        "env": {"A": "b"},
    }
    job = json.loads(json.dumps(example).encode())
    os.environ.update(job["env"])
    os.environ.clear()
    module = _module(job)
    _outcome(job, module, -1)
    _tidy(module)


def _call(job: dict[str, Any], module: types.ModuleType) -> object:
    code = compile(job["source"], job["filename"], "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102  # this is what the jail is for
    if job["entry"] is None:
        return None
    if job["entry"] not in module.__dict__:
        raise NameError(f"the code defines no {job['entry']!r}")
    return module.__dict__[job["entry"]](**job["parameters"])


def _form(found: object) -> object:
    """The JSON form of a result; a `TypeError` names the place in one that has none."""
    try:
        return json_form(found, escape=False)
    except NoJsonForm as exc:
        raise TypeError(f"{exc.told('result')}; return {exc.instead}") from None


def _execute(job: dict[str, Any], result: int) -> None:
    """Become another program, which finds the descriptor for its result where it was all the time."""
    os.set_inheritable(result, True)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them; another program expects them.
    try:
        os.execve(job["argv"][0], job["argv"], job["env"])  # noqa: S606
    except OSError as exc:
        os.write(2, f"cannot run {job['argv'][0]}: {exc.strerror}\n".encode())
        os._exit(127)


def _exit_status(exc: SystemExit) -> int:
    code = exc.code
    if code is None:
        return 0
    if type(code) is int:
        return code & 0xFF
    os.write(2, _shown(code).encode("utf-8", "backslashreplace")[:MESSAGE_CHARS_MAX] + b"\n")
    return 1


def _story(exc: BaseException, filename: str) -> dict[str, Any]:
    """Types and places of an exception and its causes, read without running any method of the user's."""
    chain: list[dict[str, Any]] = []
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen and len(chain) < CAUSES_MAX:
        seen.add(id(one))
        chain.append({"type": _type_name(one), "frames": _frames(one), "syntax": _syntax(one, filename)})
        cause = _plain(one, "__cause__")
        if cause is None and not _plain(one, "__suppress_context__"):
            cause = _plain(one, "__context__")
        one = cause
    return {"chain": chain}


def _plain(exc: BaseException, name: str) -> Any:
    """An attribute as the exception itself holds it, not as a subclass may answer for it."""
    return BaseException.__dict__[name].__get__(exc)


def _type_name(exc: BaseException) -> str:
    kind = type(exc)
    name = type.__dict__["__name__"].__get__(kind)
    return str(name)[:NAME_CHARS_MAX]


def _frames(exc: BaseException) -> list[list[Any]]:
    """Where it was raised, outermost first: file, line, column (0 when unknown), name. The middle may be left out."""
    found: list[list[Any]] = []
    place = _plain(exc, "__traceback__")
    while place is not None:
        code = place.tb_frame.f_code
        if code.co_filename != __file__:
            column = 0
            for index, (_, _, start, _) in enumerate(code.co_positions()):
                if index == place.tb_lasti // 2:
                    column = 0 if start is None else start + 1
                    break
            found.append(
                [code.co_filename[-NAME_CHARS_MAX:], place.tb_lineno, column, code.co_qualname[:NAME_CHARS_MAX]]
            )
            if len(found) > 2 * FRAMES_MAX:
                del found[FRAMES_MAX // 2]
        place = place.tb_next
    if len(found) > FRAMES_MAX:
        found[FRAMES_MAX // 2 : len(found) - FRAMES_MAX // 2] = [["...", 0, 0, ""]]
    return found


def _syntax(exc: BaseException, filename: str) -> list[int] | None:
    """Line and column of a syntax error in the job's own file."""
    if type(exc) not in (SyntaxError, IndentationError, TabError) or exc.filename != filename:  # type: ignore[attr-defined]
        return None
    line, column = exc.lineno, exc.offset  # type: ignore[attr-defined]
    if type(line) is not int or type(column) not in (int, type(None)):
        return None
    return [min(max(0, line), PLACE_MAX), min(max(0, column or 0), PLACE_MAX)]  # Both are the user's to set.


def _message(exc: BaseException) -> str:
    """The message, if it comes in time. A method that runs on in C is ended from outside."""

    def late(*_: object) -> None:
        raise TimeoutError

    try:
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, MESSAGE_SECONDS)
        return _shown(exc)
    except BaseException:  # noqa: BLE001  # also what a handler or a message's own method raises
        return "<no message: it could not be formatted>"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _shown(value: object) -> str:
    text = str.__str__(str(value))
    return text if len(text) <= MESSAGE_CHARS_MAX else text[:MESSAGE_CHARS_MAX] + "..."


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _send(result: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(result, view) :]
    except OSError:
        os._exit(STATUS_RAISED)  # The user's code closed it: nothing can be reported.


def _tidy(module: types.ModuleType) -> None:
    """Wait for non-daemon threads, as every program does, and close what was left open.

    Children that still run are ended with the jail.
    """
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        if atexit._ncallbacks():  # noqa: SLF001
            atexit._run_exitfuncs()  # noqa: SLF001  # this process leaves by _exit, which runs none
        module.__dict__.clear()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: S110, BLE001  # the user's own finalisers; the result stands
        pass
