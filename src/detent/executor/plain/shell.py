"""Runs a command line with its shell, in a session of its own below the worker (X-175, X-189)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.executor.plain import processes
from detent.executor.plain.capture import Taken, cut
from detent.executor.plain.stored import Unfit

STDOUT_BYTES_MAX = 64 * 1024
"""Bytes of stdout in the value; everything that is kept is next to it."""
_TAIL_BYTES = 2000
_TERM_SECONDS = 30.0
_UNSAID = ("/bin/sh", "-c")
"""For an order that names no shell."""
_PIPE_BROKEN = 128 + signal.SIGPIPE
_PIPE_BROKEN_TEXT = (
    "; a command of a pipe was ended by SIGPIPE because a later one stopped reading. If that is meant, append `|| true` to it,"
    " or choose a shell without pipefail with `shell:`"
)


def run(
    shell: Sequence[str],
    command: str,
    environment: Mapping[str, str],
    out: Taken,
    err: Taken,
    may_stop: Callable[[], None],
) -> dict[str, Any]:
    """The value without its outputs; raises `Unfit` for an exit status that is not 0.

    From ``may_stop`` on, an exception may come at any moment; before that the command could not be ended by it.
    """
    words = shell or _UNSAID
    program = shutil.which(words[0])
    if program is None:
        message = f"shell {words[0]!r:.200} is not installed here; install it, or choose another with `shell:`"
        raise Unfit("DEPENDENCY_ERROR", "SHELL_NOT_FOUND", message)
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, which is what this is for
            [program, *words[1:], command], stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        raise Unfit("USER_CODE_ERROR", "SHELL_EXIT", f"cannot run {words[0]}: {exc}") from exc
    try:
        may_stop()
        status = process.wait()
    except BaseException:
        # Told to stop: the command gets the same signal, and the supervisor bounds how long it may take.
        with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_TERM_SECONDS)
        raise
    finally:
        processes.end_children()
        process.poll()
    if status != 0:
        ended = f"with exit status {status}" if status > 0 else f"by signal {-status}"
        tail = cut(err.tail(_TAIL_BYTES)).decode("utf-8", "replace").strip()
        ended += _PIPE_BROKEN_TEXT if status == _PIPE_BROKEN and "pipefail" in words else ""
        raise Unfit("USER_CODE_ERROR", "SHELL_EXIT", f"the command ended {ended}" + (f": {tail}" if tail else ""))
    if not out.is_kept():
        raise Unfit(
            "INTERNAL_ERROR", "RESULT_NOT_PASSED", "what the command printed could not be kept: the disk is full"
        )
    text = cut(out.peek(STDOUT_BYTES_MAX)).decode("utf-8", "replace")
    return {"exit": 0, "stdout": text}
