"""A host that waits: exec'd, loading what it needs, not told yet for which home it is to make workers.

An interpreter takes longer to come up than a home to open. A command that will need workers starts their host before it
loads anything else, and hands it to its pool later. Nothing of a home is known by then, so the mark of the host, by which
those who look after left-over processes know it, gets its first half when it is told (`host.main`).

Loads little itself: whatever is loaded before the host is started is waited for.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from detent import version
from detent.executor.plain.wire import MARKER

NO_HOME: Final = "-" * 16
"""In a marker, in place of the home's id."""
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from detent.executor.plain.host import main; main(*sys.argv[2:])"
)
_KILLED_SECONDS_MAX: Final = 5.0


class HostProcess:
    """One host. It ends when its control socket is closed, when this process ends, or with this object if no pool took it over.

    ``preload`` names modules of ours that most tasks load: the host loads them while it waits, and its workers have them.
    Raises `OSError` when the interpreter cannot be started.
    """

    def __init__(
        self,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        *,
        preload: Sequence[str] = (),
        tag: str | None = None,
    ) -> None:
        self.tag = f"{os.getpid()}-{os.urandom(4).hex()}" if tag is None else tag
        """Names everything that the pool of this host starts and writes."""
        self.taken = False
        """Whether a pool has taken it over."""
        self._began_with = _surroundings()
        self.notes = os.fdopen(os.memfd_create("detent-host", os.MFD_CLOEXEC), "w+b", buffering=0)
        """What the host writes to standard error."""
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = dict(os.environ if environment is None else environment) | {MARKER: f"{NO_HOME}:{self.tag}"}
        told = [str(theirs.fileno()), str(os.getpid()), json.dumps(list(preload))]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter, or the one that was asked for
                [python, "-P", "-c", _START, str(Path(version.__file__).parent.parent), *told],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.notes,
                env=variables,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            self.control.close()
            self.notes.close()
            raise
        finally:
            theirs.close()

    @property
    def fits(self) -> bool:
        """Whether a host started now would be the same: the user's code may have changed the environment or the directory."""
        return self._began_with == _surroundings()

    def __del__(self) -> None:
        if hasattr(self, "process") and not self.taken:
            self.drop()

    def drop(self) -> None:
        """End a host that no pool has taken over."""
        self.taken = True
        self.control.close()
        self.process.kill()
        self.process.wait(_KILLED_SECONDS_MAX)
        self.notes.close()


def _surroundings() -> tuple[dict[str, str], str | None]:
    try:
        return dict(os.environ), os.getcwd()  # noqa: PTH109 - pathlib would say no more
    except FileNotFoundError:
        return dict(os.environ), None
