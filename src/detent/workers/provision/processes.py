"""Hosts as processes of this machine: the first provisioner, and what the others are compared with.

Each host has a directory of its own for its key and its content, which is removed when the host has gone. A host ends with the keeper that
started it, as children of the server do (`runs.ending`): it takes nothing new and finishes what it has begun. The next keeper lists such
hosts until they have gone, by the marks of their processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detent.executor.plain.sweep import sweep_orphans
from detent.jobs.pools import Pool
from detent.store.content import ProcessMark
from detent.workers.provision import GONE, HostOrder, ProvisionFailed, worker_words

MARK_FILE: Final = "process"


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    lifeline: int


class Processes:
    """Starts hosts below a directory."""

    def __init__(self, pool: Pool, directory: Path, on_gone: GONE) -> None:
        self._pool, self._directory, self._on_gone = pool, directory, on_gone
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)

    def fault(self) -> str | None:
        """A machine can always start another process."""
        return None

    def ensure(self, order: HostOrder) -> None:
        """Start a host."""
        place = self._directory / order.host_id
        ours, theirs = os.pipe()
        try:
            place.mkdir(mode=0o700)
            os.set_inheritable(ours, False)
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
                [sys.executable, *worker_words(self._pool, order, str(place / "state")), "--lifeline", str(ours)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(ours,),
                cwd=order.project,
                start_new_session=True,
            )
            mark = ProcessMark.of(process.pid)
            (place / MARK_FILE).write_text("/".join(mark.parts()))
        except FileExistsError:
            os.close(theirs)
            return
        except OSError as exc:
            os.close(theirs)
            shutil.rmtree(place, ignore_errors=True)
            raise ProvisionFailed(
                f"a host of pool {self._pool.name} cannot be started: {exc}", hint="see the server's machine"
            ) from exc
        finally:
            os.close(ours)
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as stdin:  # It is told to `on_gone` if it has ended already.
            stdin.write(order.token.encode())
        with self._lock:
            self._running[order.host_id] = _Running(process, theirs)
        threading.Thread(
            target=self._wait, args=(order.host_id,), name=f"detent-host-{order.host_id}", daemon=True
        ).start()

    def list(self) -> dict[str, bool]:
        """The hosts whose processes run. Those of an earlier keeper leave. What hosts have left behind that are gone is removed."""
        with self._lock:
            running = set(self._running)
        found = {}
        for place in sorted(self._directory.iterdir()):
            if place.name in running or not _is_gone(place):
                found[place.name] = place.name in running
            else:
                sweep_orphans(place / "state" / "work" / "live")
                shutil.rmtree(place, ignore_errors=True)
        return found

    def release(self, host_id: str) -> None:
        """Kill a host. One of an earlier keeper ends by itself."""
        with self._lock:
            running = self._running.get(host_id)
        if running is not None:
            running.process.kill()

    def close(self) -> None:
        """Have all hosts end when they have finished what they run, and wait for them."""
        with self._lock:
            running = list(self._running.values())
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.wait()
        self.list()  # Removes what they leave behind.

    def _wait(self, host_id: str) -> None:
        running = self._running[host_id]
        running.process.wait()
        with self._lock:
            del self._running[host_id]
        os.close(running.lifeline)
        self._on_gone(host_id)


def _is_gone(place: Path) -> bool:
    try:
        mark = ProcessMark.parse((place / MARK_FILE).read_text().split("/"))
    except OSError:
        return True
    return mark is None or mark.is_gone
