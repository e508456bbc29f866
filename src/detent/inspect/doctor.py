"""Looks a home over: files and permissions, the sandbox, keys and trust, the database, the owner, the tree head kept
elsewhere.

Each check answers by itself, so that one broken thing does not hide the next. Nothing is changed. What is wrong comes with
what to do about it.

What this machine's sandbox is, and what untrusted code gets by it: the answer of `detent doctor`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import stat
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.executor.sandbox.capabilities import Capabilities, probe, profile_of
from detent.executor.sandbox.model import DEFAULT_REQUIRED, Profile
from detent.inspect.environment import environment_now
from detent.inspect.replicas import HINT, registered, registered_text
from detent.kernel.identity import EQC_COMPLIANCE, OPERATORS, ORCHESTRATOR_VERSION, SPEC_AUTHOR, SPEC_DATE
from detent.kernel.table import TABLE_DIGEST, TABLE_MAJOR, TRANSITIONS, State, table_digest, table_faults
from detent.owner.home import Home
from detent.owner.home_permissions import user_name
from detent.owner.keys import ACTIVE, HERE, MISSING, UNUSABLE, keys_view
from detent.owner.lock import is_held, owner_pid
from detent.owner.settings import SANDBOX_REQUIRED
from detent.owner.state_directory import KeptHeads, ledger_name, refuse_copy, state_directory
from detent.owner.views import Times
from detent.owner.wiring import Parts, check_kept_head
from detent.store.api import StoreReader
from detent.store.files import mount_of, refuse_network_file_system
from detent.store.sqlite.database import file_facts
from detent.version import __version__
from detent.words.quantities import age_text

OK, NOTE, WRONG = "ok", "note", "wrong"
SPACE_LEAST_MIB: Final = 64
"""Below it a home is about to stand still: a busy one writes as much to its log before it is written back."""


PERMISSIONS_SHOWN_MAX: Final = 10
PUBLIC: Final = frozenset({"config.toml", ".gitignore"})
"""What holds no secrets: others may read it where they may enter the home, and never write to it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str
    text: str
    hint: str | None = None

    def to_map(self) -> dict[str, object]:
        """One object of `detent doctor -o json`."""
        return {"name": self.name, "status": self.status, "text": self.text, "hint": self.hint}


def examine(
    home: Home, *, environment: Mapping[str, str], thorough: bool = True, sandbox: SandboxView | None = None
) -> Iterator[Check]:
    """Every check, in the order in which things depend on each other.

    ``thorough`` also has SQLite read the whole file. A ledger that does not open ends the examination: nothing that
    follows could be answered. ``sandbox`` is what `sandbox_of` found, if it was called.
    """
    yield Check("detent", OK, f"{__version__}, Python {platform.python_version()}, {platform.system()}")
    yield interpreter_of(str(sysconfig.get_config_var("CONFIG_ARGS") or ""), sys.base_prefix)
    yield bytecode_of(None if sys.dont_write_bytecode else Path(__file__).parent)
    yield kernel_of(TRANSITIONS)
    yield Check("home", OK, str(home.path))
    yield from _answered("file system", lambda: _file_system(home.path))
    yield from _answered("space", lambda: space_of(os.statvfs(home.path)))
    yield from _permissions(home)
    yield from _answered("settings", lambda: _settings(home))
    yield from _answered("environment", lambda: Check("environment", OK, environment_now(home).text))
    yield from _sandbox(sandbox or sandbox_of(home))
    facts = list(_answered("database", lambda: _database(home)))
    yield from facts
    if facts[0].status == WRONG:
        return
    yield from _answered("schema", lambda: _schema(home))
    if thorough:
        yield from _answered("integrity", lambda: _integrity(home))
    with Parts().open_reader(home.ledger, any_schema=True) as reader:
        yield from _answered("keys", lambda: _keys(home, reader))
        yield from _answered("ledger", lambda: _ledger(reader))
        yield from _answered("content", lambda: _content(home, reader))
        yield from _answered("replicas", lambda: _replicas(reader))
        identity = list(_answered("identity", lambda: _identity(home, reader, environment)))
        yield from identity
        for partition in range(reader.partitions):
            yield from _answered("tree head", partial(_tree_head, reader, partition))
            if identity[0].status == WRONG:
                continue  # The tree heads that are kept are those of its original.
            yield from _answered("kept tree head", partial(_kept_head, reader, partition, environment))
    yield _owner(home)


def interpreter_of(configured: str, prefix: str) -> Check:
    """Whether the interpreter was built with profile-guided optimisation (PGO), by how it was configured.

    Distributions that build it in other ways leave no trace of it in the configuration; those under /usr are trusted to.
    """
    if "--enable-optimizations" in configured:
        return Check("interpreter", OK, "built with PGO")
    if prefix == "/usr":
        return Check("interpreter", OK, "built by the distribution")
    hint = "jobs cost 10 to 20 % more CPU than necessary: use the distribution's Python, or build it with --enable-optimizations"
    return Check("interpreter", NOTE, "built without PGO", hint)


def kernel_of(transitions: Mapping[State, Iterable[State]]) -> Check:
    """Whether a table of states and moves is the closed one of the contract, and the one that its major version is for."""
    found = table_digest(transitions)
    faults = table_faults(transitions)
    if faults or found != TABLE_DIGEST:
        text = "; ".join(faults) or f"the table's digest is {found}, but major version {TABLE_MAJOR} has {TABLE_DIGEST}"
        return Check("kernel", WRONG, text, "install Detent again: its table of states was changed")
    return Check("kernel", OK, f"{ORCHESTRATOR_VERSION}, states and moves of version {TABLE_MAJOR} ({found})")


def kernel_view() -> dict[str, object]:
    """What the kernel calls itself, its operators and its table: the object `kernel` of `detent doctor -o json`."""
    return {
        "orchestrator_version": ORCHESTRATOR_VERSION,
        "spec_date": SPEC_DATE,
        "spec_author": SPEC_AUTHOR,
        "compliance": EQC_COMPLIANCE,
        "operators": [
            {
                "name": operator.name,
                "inputs": list(operator.inputs),
                "outputs": list(operator.outputs),
                "category": operator.category,
                "purity": operator.purity,
                "determinism": operator.determinism,
            }
            for operator in OPERATORS.values()
        ],
        "table": {
            "major": TABLE_MAJOR,
            "digest": TABLE_DIGEST,
            "moves": {source.value: sorted(target.value for target in TRANSITIONS[source]) for source in State},
        },
    }


def bytecode_of(package: Path | None) -> Check:
    """Whether compiled modules are kept; ``package`` is a directory of them, None when Python was asked to keep none."""
    cache = None if package is None else Path(importlib.util.cache_from_source(str(package / "x.py"))).parent
    if cache is not None and (os.access(cache, os.R_OK) or os.access(_existing(cache), os.W_OK)):
        return Check("bytecode", OK, "compiled modules are kept")
    hint = "unset PYTHONDONTWRITEBYTECODE, or set PYTHONPYCACHEPREFIX to a directory that you may write to"
    return Check("bytecode", NOTE, "compiled modules cannot be kept: every command starts about 0.5 s later", hint)


def _existing(path: Path) -> Path:
    """The path, or the closest directory above it that exists."""
    return path if path.exists() or path == path.parent else _existing(path.parent)


def sandbox_of(home: Home) -> SandboxView:
    """This machine's sandbox against what the home requires; settings that cannot be read are another check's business."""
    try:
        required = home.settings().sandbox_required
    except DetentError:
        required = SANDBOX_REQUIRED
    return sandbox_view(required)


def space_of(said: os.statvfs_result) -> Check:
    """Whether anything can be written where a home lies, by what the system says of the place."""
    if said.f_flag & os.ST_RDONLY:
        text = "the file system is read-only: the history can be read, but nothing can run"
        return Check("space", WRONG, text, "mount it for writing, or choose another home with --home or DETENT_HOME")
    free_mib = said.f_bavail * said.f_frsize // (1 << 20)
    if free_mib < SPACE_LEAST_MIB:
        return Check("space", WRONG, f"{free_mib} MiB are free", "free some space: nothing can run on a full disk")
    return Check("space", OK, f"{free_mib:,} MiB are free")


def _answered(name: str, look: Callable[[], Check]) -> Iterator[Check]:
    try:
        yield look()
    except DetentError as exc:
        yield Check(name, WRONG, str(exc), exc.hint)
    except OSError as exc:
        yield Check(name, WRONG, f"{exc.filename or name}: {exc.strerror or exc}", "check that you may read it")


def _file_system(path: Path) -> Check:
    refuse_network_file_system(path)
    return Check("file system", OK, mount_of(path) or "unknown")


def _permissions(home: Home) -> Iterator[Check]:
    """Owner and mode of the home and of everything in it, each file looked at."""
    owner = home.path.stat().st_uid
    count, wrong = 0, []
    for path, found in _tree(home.path):
        count += 1
        if (fault := _loose(home, path, found, owner)) is not None:
            wrong.append(fault)
    yield from wrong[:PERMISSIONS_SHOWN_MAX]
    if len(wrong) > PERMISSIONS_SHOWN_MAX:
        yield Check("permissions", WRONG, f"and {len(wrong) - PERMISSIONS_SHOWN_MAX:,} more files of the home")
    if not wrong:
        text = f"all {count:,} files and directories belong to {user_name(owner)}, and no other user may read or change them"
        yield Check("permissions", OK, text)
    if owner != os.geteuid():
        yield Check("owner of files", NOTE, f"the home is not yours: {user_name(owner)} decides what is in it")
    if not (home.path / ".gitignore").exists():
        yield Check("gitignore", WRONG, "the home's .gitignore is missing", f"echo '*' > {home.path / '.gitignore'}")


def _tree(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """A directory and everything below it, as it is: links are not followed, and what went away meanwhile is left out."""
    waiting = [directory]
    while waiting:
        path = waiting.pop()
        with suppress(FileNotFoundError, PermissionError):
            found = path.lstat() if path != directory else path.stat()
            yield path, found
            if stat.S_ISDIR(found.st_mode):
                waiting.extend(sorted(path.iterdir(), reverse=True))


def _loose(home: Home, path: Path, found: os.stat_result, owner: int) -> Check | None:
    """What is wrong with the owner or the mode of something in a home; None for nothing."""
    quoted = shlex.quote(str(path))
    if stat.S_ISLNK(found.st_mode):
        return Check("permissions", WRONG, f"{path} is a symbolic link", f"put the file itself there, or rm {quoted}")
    if found.st_uid != owner:
        text = f"{path} belongs to {user_name(found.st_uid)}, and the home to {user_name(owner)}"
        return Check("permissions", WRONG, text, f"find out why; then chown {owner} {quoted}")
    mode = stat.S_IMODE(found.st_mode)
    if mode & (0o022 if path.parent == home.path and path.name in PUBLIC else 0o077):
        wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
        return Check("permissions", WRONG, f"{path} has mode {mode:03o}", f"chmod {wanted:o} {quoted}")
    return None


def _settings(home: Home) -> Check:
    settings = home.settings()
    return Check("settings", OK, f"{settings.origin}, root {digest_text(settings.root)}")


def _sandbox(view: SandboxView) -> Iterator[Check]:
    """The verdict, then what it is made of. A machine that cannot contain untrusted code is not broken: nothing is wrong."""
    status = OK if view.contained and not view.lowered else NOTE
    yield Check("sandbox", status, view.verdict(), view.hint())
    for primitive in view.primitives:
        text = f"{primitive.name} {'yes' if primitive.works else 'no'}: {primitive.text}"
        yield Check("sandbox part", OK if primitive.works else NOTE, text)


def _database(home: Home) -> Check:
    ledger = home.ledger
    if not isinstance(ledger, Path):
        from detent.store.postgres.facts import describe  # noqa: PLC0415 - most homes have no PostgreSQL

        return Check("database", OK, describe(ledger))
    facts = file_facts(ledger)
    text = (
        f"SQLite {facts.sqlite_version} (at least {facts.sqlite_version_min} is needed), schema {facts.schema},"
        f" journal {facts.journal_mode}, {facts.pages:,} pages of {facts.page_bytes:,} bytes"
    )
    return Check("database", OK if facts.journal_mode == "wal" else WRONG, text)


def _schema(home: Home) -> Check:
    faults = Parts().schema_faults(home.ledger)
    if not faults:
        return Check("schema", OK, "every table, index and trigger is the one that this version defines")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    tool = "sqlite3" if isinstance(home.ledger, Path) else "psql"
    hint = f"drop what was planted with `{tool} {shlex.quote(str(home.ledger))}`, or restore a backup"
    return Check("schema", WRONG, f"{faults[0]}{more}", hint)


def _integrity(home: Home) -> Check:
    found = Parts().damage(home.ledger)
    if not isinstance(home.ledger, Path):
        return Check(
            "integrity", OK, "PostgreSQL checks its own pages: `pg_amcheck`; `detent verify` checks the history"
        )
    if not found:
        return Check("integrity", OK, "SQLite finds no damage; `detent verify` checks the history itself")
    told = [line for said in found for line in said.splitlines() if line and not line.startswith("***")] or list(found)
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return Check("integrity", WRONG, f"{told[0]}{more}", "keep a copy of ledger.db, then restore a backup")


def _keys(home: Home, reader: StoreReader) -> Check:
    view = keys_view(home, reader)
    active = [key for key in view.keys if key.state == ACTIVE and key.entry.role != "witness"]
    here = {key.entry.role for key in active if key.private == HERE}
    # Other servers of the ledger have keys of their own. One of each role must be here; but the root key is on one of them at most, and a
    # home that never served certifies no workers.
    shared = any(key.private == MISSING and key.entry.role in here for key in active)
    lacking = [
        key
        for key in active
        if key.private == UNUSABLE
        or (key.entry.role not in here and not (shared and key.entry.role in {"root", "enroll"}))
    ]
    if lacking:
        first = lacking[0]
        what = first.why or f"the private {first.entry.role} key {first.entry.key_id.hex()[:16]} is not here"
        return Check("keys", WRONG, what, "restore the keys directory from a backup")
    own = sum(key.private == HERE for key in active)
    return Check("keys", OK, f"trust version {view.version}, {own} private keys in use")


def _ledger(reader: StoreReader) -> Check:
    heads = [reader.head(partition) for partition in range(reader.partitions)]
    counts = ", ".join(f"{count} {state}" for state, count in reader.job_counts().items()) or "no jobs"
    batches, records = sum(head.size for head in heads), sum(head.next_position for head in heads)
    return Check(
        "ledger", OK, f"{batches:,} batches, {records:,} records, epoch {max(head.epoch for head in heads)}; {counts}"
    )


def _content(home: Home, reader: StoreReader) -> Check:
    inline = [size for _, size in reader.content_digests()]
    files = home.content_files()
    sizes = [files.size(digest) or 0 for digest in files.digests()]
    erased = sum(1 for _ in reader.erased_digests())
    return Check(
        "content",
        OK,
        f"{len(inline):,} in the database ({sum(inline):,} bytes), {len(sizes):,} in files ({sum(sizes):,} bytes), {erased} erased",
    )


def _replicas(reader: StoreReader) -> Check:
    replicas = registered(reader)
    if not replicas:
        return Check("replicas", OK, "none is registered: this home's own workers run its jobs")
    return Check(
        "replicas",
        NOTE,
        f"{registered_text([one.status for one in replicas])}; the workers of `detent run` get none",
        HINT,
    )


def _tree_head(reader: StoreReader, partition: int) -> Check:
    size = reader.head(partition).size
    newest = next(reader.tree_heads(partition), None)
    if newest is None:
        return Check("tree head", NOTE, f"partition {partition} has none yet; {size:,} batches are not covered")
    times = Times.of(reader)
    batch = reader.batch(partition, newest.size - 1)
    at = times.iso(batch.last_tick) if batch is not None else "an unknown time"
    behind = size - newest.size
    text = f"partition {partition}: over {newest.size:,} of {size:,} batches, the last of them from {at}"
    if batch is not None:
        now_ms = time.time_ns() // 1_000_000
        text += f" ({age_text(now_ms - batch.last_tick * times.tick_ms - times.epoch_base_ms)} ago)"
    return Check("tree head", OK if behind == 0 else NOTE, text)


def _identity(home: Home, reader: StoreReader, environment: Mapping[str, str]) -> Check:
    name = ledger_name(reader)
    refuse_copy(home, name, environment)
    own = "" if name == reader.origin else f", which began as a copy of {reader.origin}"
    return Check("identity", OK, f"{name}{own}")


def _kept_head(reader: StoreReader, partition: int, environment: Mapping[str, str]) -> Check:
    keeper = KeptHeads(state_directory(environment), ledger_name(reader))
    kept = keeper.heads().get(partition)
    if kept is None:
        return Check("kept tree head", NOTE, f"none in {keeper.path}: a rollback of this home would not be noticed")
    check_kept_head(reader, kept, partition)
    return Check("kept tree head", OK, f"partition {partition}: over {kept[0]:,} batches, in {keeper.path}; it fits")


def _owner(home: Home) -> Check:
    if not is_held(home.lock):
        return Check("owner", OK, "no process owns the home now")
    listening = "and listens" if home.socket.exists() else "and does not listen"
    return Check("owner", OK, f"process {owner_pid(home.lock) or 'unknown'} owns the home {listening}")


MEANING: Final[Mapping[Profile, str]] = {
    Profile.FULL: "contained, and the kernel counts the memory and the processes of the whole tree",
    Profile.FULL_ROOTLESS: "contained; memory and processes of the whole tree are looked at, not counted by the kernel",
    Profile.KERNEL_FILTER: "kept from files and the network, but in this machine's own processes, users and host name",
    Profile.NONE: "not contained: a plain child process with limits",
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One thing that the kernel offers a sandbox, or does not."""

    name: str
    works: bool
    text: str

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"name": self.name, "works": self.works, "text": self.text}


@dataclass(frozen=True, slots=True)
class SandboxView:
    """The strongest profile here, the one that is required, and what they are made of."""

    profile: Profile
    required: Profile
    primitives: tuple[Primitive, ...]
    is_root: bool

    @property
    def contained(self) -> bool:
        """Whether untrusted code is run here; otherwise it is refused."""
        return self.profile.strength >= self.required.strength

    @property
    def lowered(self) -> bool:
        """Whether an operator allows less than such code should have."""
        return self.required.strength < DEFAULT_REQUIRED.strength

    def verdict(self) -> str:
        """What untrusted code gets here, in a sentence."""
        here = f"profile {self.profile.value}, required is {self.required.value}: untrusted code "
        if not self.contained:
            return f"{here}is refused (SANDBOX_UNAVAILABLE); trusted functions and shell steps run as everywhere"
        told = " and every result says that less was required" if self.lowered else ""
        return f"{here}is {MEANING[self.profile]}{told}"

    def hint(self) -> str | None:
        """What to do where it is refused; nothing where it is not."""
        if self.contained:
            return None
        lacking = ", ".join(primitive.name for primitive in self.primitives if not primitive.works)
        return (
            f"it lacks {lacking}; docs/sandbox.md says who has it, and sandbox.required in config.toml what is needed"
        )

    def to_map(self) -> dict[str, object]:
        """One object of `detent doctor -o json`."""
        return {
            "profile": self.profile.value,
            "required": self.required.value,
            "contained": self.contained,
            "lowered": self.lowered,
            "root": self.is_root,
            "primitives": [primitive.to_map() for primitive in self.primitives],
        }


def sandbox_view(required: str, capabilities: Capabilities | None = None) -> SandboxView:
    """Try what this machine offers, once per process; takes a fraction of a second."""
    found = probe() if capabilities is None else capabilities
    primitives = tuple(Primitive(*line) for line in found.lines())
    return SandboxView(profile_of(found), Profile(required), primitives, found.is_root)
