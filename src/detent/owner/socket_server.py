"""The owner's socket: other processes of the same user ask, the owner's loop decides (X-172).

One thread runs an event loop for all connections. A message is turned into commands and put into the owner's inbox like
any other request; its answer is sent when its commit is durable. A connection that sends what is not a message is
answered with an error and closed; it cannot make the owner fail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from detent.errors import DetentError, HomeError, InvalidInput, OutcomeUnknown, Refused
from detent.kernel import Command, EnrollWorker, Manifest, Outcome, RefusedManifest, Submit, VerifiedManifest
from detent.kernel.commands import command_from_list
from detent.ledger.schema import parse_manifest
from detent.owner.owner import Owner, moved
from detent.owner.questions import question_of
from detent.owner.socket_messages import (
    CLIENT_COMMANDS,
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    PROTOCOL,
    answer_of,
    answer_to_list,
    answers_from_list,
    error_to_map,
    frame,
    read_message,
    work_from_list,
)
from detent.owner.store_history import check_asker, open_grants
from detent.owner.turn import Make
from detent.owner.worker_turn import JudgeReport, WorkerTurn
from detent.store.files import untrusted_file

if TYPE_CHECKING:
    import asyncio

    Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Answers a connection may leave unread before it is closed."""
FRAME_SECONDS_MAX = 60.0
"""How long a message may take from its first byte to its last. Between two messages a connection may be silent for ever."""

Operation: TypeAlias = "tuple[Future[Any], Callable[[Any], dict[str, object]]]"
"""What was asked of an owner, and what is said of its answer."""


class Asked(Protocol):
    """How what other processes send is checked before a partition decides it."""

    def verified(self, partition: int, signed: tuple[bytes, bytes, bytes]) -> VerifiedManifest | Refused:
        """A manifest, if the key that signed it may."""

    def judging(self, partition: int) -> JudgeReport:
        """How a report is judged."""

    def insist_on_enrolment(self, partition: int, command: EnrollWorker) -> None:
        """Refuse a worker whose certificate or proof does not hold."""


class Forwards(Protocol):
    """A connection to an owner elsewhere."""

    def forward(self, message: dict[str, object]) -> Future[dict[str, object]]:
        """Pass on the message of another process; the future has the whole answer."""


class Elsewhere(Protocol):
    """The owners of partitions that are not owned here."""

    def reach(self, partition: int) -> Forwards:
        """The connection to the owner of a partition; `StoreUnavailable` where there is none now. Does not wait."""


class SocketServer:
    """Listens on a socket and feeds owners."""

    def __init__(
        self,
        path: Path | None,
        asked: Asked,
        owners: Mapping[int, Owner],
        partitions: int,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """``owners`` may change; what is for a partition without one here is passed on ``elsewhere``, or refused."""
        self._path = path
        self._asked = asked
        self._owners, self._partitions = owners, partitions
        self._elsewhere = elsewhere
        self._operations: dict[str, Callable[[dict[str, object]], Operation]] = {
            "ask": self._ask,
            "result": self._result,
            "turn": self._turn,
            "look": self._look,
            "grants": self._grants,
        }
        self._bound: socket.socket | None = None
        self._bell, self._bell_heard = socket.socketpair()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="detent-service", daemon=True)
        self._lock = threading.Lock()
        self._closing = False
        self._turns: set[Owner] = set()
        """Owners for which a turn will be taken as soon as what has come has been read."""
        self._descriptors: set[int] = {self._bell.fileno(), self._bell_heard.fileno()}
        _listening.add(self)

    def start(self) -> None:
        """Listen; when this returns, clients can connect."""
        try:
            self._bound = self._bind()
            self._bound.listen()
        except BaseException:
            self._hang_up()
            raise
        self._descriptors.add(self._bound.fileno())
        self._thread.start()

    def close(self) -> None:
        """Close all connections and stop listening."""
        with self._lock:
            self._closing = True
            loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            loop.call_soon_threadsafe(stop.set)
        self._bell.send(b"!")
        if self._thread.is_alive():
            self._thread.join()
        self._hang_up()

    def _hang_up(self) -> None:
        for end in (self._bell, self._bell_heard, self._bound):
            if end is not None:
                self._descriptors.discard(end.fileno())
                end.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _run(self) -> None:
        """Wait for a client. Most processes end before one connects, and never load an event loop."""
        if self._bound is None:
            return
        waiting = select.poll()
        for end in (self._bound, self._bell_heard):
            waiting.register(end, select.POLLIN)
        waiting.poll()
        if self._closing:
            return
        import asyncio  # noqa: PLC0415 - see above

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve(loop, self._bound))
        finally:
            with self._lock:
                self._loop = None
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
        import asyncio  # noqa: PLC0415

        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                connections.add(task)
                task.add_done_callback(connections.discard)
            descriptor: int = writer.get_extra_info("socket").fileno()
            self._descriptors.add(descriptor)
            try:
                await self._talk(reader, writer)
            finally:
                self._descriptors.discard(descriptor)

        stop = asyncio.Event()
        with self._lock:
            if self._closing:
                return
            self._loop, self._stop = loop, stop
        served = bound.dup()
        self._descriptors.add(served.fileno())
        server = await self._listen(accept, served)
        await stop.wait()
        self._descriptors.discard(served.fileno())
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _listen(self, accept: Accept, served: socket.socket) -> asyncio.AbstractServer:
        import asyncio  # noqa: PLC0415

        # Newer ones would remove the socket at the end, by a name that may be gone by then; that is for `_hang_up`.
        options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        return await asyncio.start_unix_server(accept, sock=served, limit=FRAME_BYTES_MAX, **options)

    def _bind(self) -> socket.socket:
        """Bind the socket, 0600 from its first moment; a socket left by a dead owner is in the way and removed."""
        assert self._path is not None
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            # Before binding, so that no client can be quicker; not by the umask, which belongs to all threads of a process.
            os.fchmod(made.fileno(), 0o600)
            with short_path(self._path) as path:
                made.bind(path)
            _close_to_others(self._path)
        except OSError as exc:
            made.close()
            hint = "the home must lie on a file system that allows sockets; choose another with DETENT_HOME"
            if isinstance(exc, PermissionError) or exc.errno == errno.EROFS:
                hint = f"get the right to write to {self._path.parent}, or choose another home with DETENT_HOME"
            raise HomeError(
                f"the owner's socket {self._path} cannot be made: {exc.strerror or exc}", hint=hint
            ) from exc
        return made

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import asyncio  # noqa: PLC0415

        try:
            while True:
                self._handle(read_message(await _frame(reader)), writer)
        except InvalidInput as exc:
            self._send(writer, {"id": None, "error": error_to_map(exc)})
        except asyncio.CancelledError:
            writer.transport.abort()  # The owner ends, and does not wait for those who read no answers.
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except asyncio.CancelledError:
                writer.transport.abort()
            except ConnectionError:
                pass

    def _handle(self, message: dict[str, object], writer: asyncio.StreamWriter) -> None:
        number = message.get("id")
        try:
            if message.get("op") == "hello":
                return self._greet(message, writer)
            operation = self._operations.get(str(message.get("op")))
            if operation is None:
                raise InvalidInput(f"unknown operation {message.get('op')!r}")
            asked, said = self._passed_on(message) if self._is_elsewhere(message) else operation(message)
        except Exception as exc:  # noqa: BLE001 - no message of another process can make the owner fail
            return self._send(writer, {"id": number, "error": error_to_map(_typed(exc))})
        asked.add_done_callback(lambda done: self._soon(self._reply, writer, number, done, said))
        return None

    def _greet(self, message: dict[str, object], writer: asyncio.StreamWriter) -> None:
        epochs = [owner.epoch for owner in [*self._owners.values()]]
        hello = {"protocol": PROTOCOL, "pid": os.getpid(), "epochs": epochs}
        self._send(writer, {"id": message.get("id"), "hello": hello})

    def _is_elsewhere(self, message: dict[str, object]) -> bool:
        return self._elsewhere is not None and self._partition(message) not in self._owners

    def _passed_on(self, message: dict[str, object]) -> Operation:
        """Have the owner of another server answer, in its own words."""
        assert self._elsewhere is not None
        asked = self._elsewhere.reach(self._partition(message)).forward(message)
        return asked, lambda answered: {name: value for name, value in answered.items() if name != "id"}

    def _soon(self, reply: Callable[..., None], *arguments: object) -> None:
        # The service may have closed meanwhile; then the client has learnt already that its outcome is unknown.
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(reply, *arguments)

    def _ask(self, message: dict[str, object]) -> Operation:
        """Put a client's commands into the inbox."""
        owner, items = self._owner(message), message.get("commands")
        if not isinstance(items, list):
            raise InvalidInput("an ask names a partition and a list of commands")
        makes = [self._make(item, owner.partition) for item in items]
        content = [_content_pair(pair) for pair in _list(message, "content")]
        work, answers = work_from_list(_list(message, "work")), answers_from_list(_list(message, "keep"))
        return self._left(owner, owner.ask(makes, content=content, work=work, answers=answers, wake=False)), _answers

    def _left(self, owner: Owner, asked: Future[list[Outcome]]) -> Future[list[Outcome]]:
        """Have a turn taken once everything that has come by now has been left: by this thread, which has nothing else to do.

        To wake the owner's own thread and to be woken by it again takes longer than the commit.
        """
        if owner not in self._turns and self._loop is not None:
            self._turns.add(owner)
            self._loop.call_soon(self._take_turn, owner)
        return asked

    def _take_turn(self, owner: Owner) -> None:
        self._turns.discard(owner)
        owner.take_turn()

    def _result(self, message: dict[str, object]) -> Operation:
        """Have a worker's signed report judged, and its attempt closed if it holds."""
        owner, envelope = self._owner(message), message.get("envelope")
        if not isinstance(envelope, bytes):
            raise InvalidInput("a result is the bytes of a signed report")
        content = [_content_pair(pair) for pair in _list(message, "content")]
        judge, kept = self._asked.judging(owner.partition)(envelope, content)
        return self._left(owner, owner.ask((), content=kept, judge=judge, wake=False)), _answers

    def _turn(self, message: dict[str, object]) -> Operation:
        """Have the turn of a worker elsewhere decided, whose server owns another partition or none."""
        owner, turn = self._owner(message), WorkerTurn.from_list(message.get("turn"))
        content = turn.prepare(self._asked.judging(owner.partition))
        asked = self._left(owner, owner.ask((), content=content, judge=turn.judge, wake=False))
        return asked, lambda outcomes: {"outcome": turn.outcome(turn.read([answer_of(one) for one in outcomes]))}

    def _look(self, message: dict[str, object]) -> Operation:
        """Have a question answered between two turns."""
        question = question_of(message.get("question"), message.get("about"))
        return self._owner(message).look(question), lambda found: {"found": [found]}

    def _grants(self, message: dict[str, object]) -> Operation:
        """Have a worker's leases looked up, for one that lost the answer which granted them."""
        replica_id, after = check_asker(message.get("replica_id"), message.get("after"))
        asked = self._owner(message).look(lambda kernel: open_grants(kernel, replica_id, after))
        return asked, lambda grants: {"grants": [list(grant) for grant in grants]}

    def _owner(self, message: dict[str, object]) -> Owner:
        partition = self._partition(message)
        owner = self._owners.get(partition)
        if owner is None:
            raise moved(partition)
        return owner

    def _partition(self, message: dict[str, object]) -> int:
        partition = message.get("partition")
        if type(partition) is not int or not 0 <= partition < self._partitions:
            raise InvalidInput(f"a request names a partition from 0 to {self._partitions - 1}")
        return partition

    def _make(self, item: object, partition: int) -> Make:
        if not isinstance(item, list) or len(item) < 2 or item[0] not in CLIENT_COMMANDS:
            raise InvalidInput("not a command that another process may ask for")
        if item[0] == "submit":
            return self._make_submit(item, partition)
        command: Command = command_from_list([item[0], 0, *item[2:]])
        if isinstance(command, EnrollWorker):
            self._asked.insist_on_enrolment(partition, command)
        return lambda tick: replace(command, tick=tick)

    def _make_submit(self, item: list[object], partition: int) -> Make:
        """A job's submission; one whose manifest does not verify goes to the kernel, too, and is refused there."""
        try:
            _, _, body, key_id, signature, run_id, request = item
        except ValueError:
            raise InvalidInput("a submission is a manifest, a key id, a signature, a run and a request") from None
        if not (isinstance(body, bytes) and isinstance(key_id, bytes) and isinstance(signature, bytes)):
            raise InvalidInput("a signed manifest has the bytes of a body, a key id and a signature")
        verified = self._asked.verified(partition, (body, key_id, signature))
        manifest = _refused_manifest(body, verified) if isinstance(verified, Refused) else verified
        return lambda tick: Submit(tick, manifest, run_id, request)  # type: ignore[arg-type] # The kernel looks at both.

    def _reply(
        self, writer: asyncio.StreamWriter, number: object, done: Future[Any], said: Callable[[Any], dict[str, object]]
    ) -> None:
        error = done.exception()
        if error is not None:
            return self._send(writer, {"id": number, "error": error_to_map(error)})
        try:
            return self._send(writer, {"id": number, **said(done.result())})
        except InvalidInput as exc:
            lost = OutcomeUnknown(f"it was decided, but the answer cannot be sent: {exc}", hint="ask for less at once")
            return self._send(writer, {"id": number, "error": error_to_map(lost)})

    def _send(self, writer: asyncio.StreamWriter, message: object) -> None:
        if writer.is_closing():
            return
        if writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            writer.transport.abort()  # Closing would wait until the rest has been read, which may be never.
            return
        writer.write(frame(message))


_listening: weakref.WeakSet[SocketServer] = weakref.WeakSet()


def _hang_up_in_child() -> None:
    """Let go of all sockets in a forked child, or clients of an owner that died would go on waiting for its children.

    The numbers stay taken, by nothing: objects of the parent's event loop still hold them and may close them.
    """
    descriptors = [descriptor for service in list(_listening) for descriptor in service._descriptors]  # noqa: SLF001
    if descriptors:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in descriptors:
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


os.register_at_fork(after_in_child=_hang_up_in_child)


class short_path:  # noqa: N801 - reads as the function it stands for in a with statement
    """A path to a socket that fits the kernel's 108 bytes, however deep the home lies."""

    LIMIT = 100

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= self.LIMIT:
            return str(self._path)
        self._directory = os.open(self._path.parent, os.O_RDONLY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            os.close(self._directory)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next message. One that is begun and not sent to its end would hold its memory for as long as its sender likes."""
    import asyncio  # noqa: PLC0415

    first = await reader.readexactly(1)
    try:
        async with asyncio.timeout(FRAME_SECONDS_MAX):
            length = int.from_bytes(first + await reader.readexactly(LENGTH_BYTES - 1), "big")
            if length > FRAME_BYTES_MAX:
                raise InvalidInput(f"a message of {length} bytes is too large (limit {FRAME_BYTES_MAX})")
            return await reader.readexactly(length)
    except TimeoutError:
        raise InvalidInput(
            f"a message was begun and not complete after {FRAME_SECONDS_MAX:g} s",
            hint="connect again and send it whole",
        ) from None


def _close_to_others(path: Path) -> None:
    """Give a socket its mode under any umask, without following a link in its place."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise untrusted_file(path, "is not the socket that was made there")
        Path(f"/proc/self/fd/{descriptor}").chmod(0o600)
    finally:
        os.close(descriptor)


def _refused_manifest(body: bytes, refusal: Refused) -> RefusedManifest:
    """A manifest that did not verify, under the job it names, if it names one."""
    claimed = parse_manifest(body)
    return RefusedManifest(refusal, claimed.job_id if isinstance(claimed, Manifest) else None)


def _list(message: dict[str, object], name: str) -> list[object]:
    value = message.get(name, [])
    if not isinstance(value, list):
        raise InvalidInput(f"{name} must be a list")
    return value


def _answers(outcomes: list[Outcome]) -> dict[str, object]:
    return {"answers": [answer_to_list(answer_of(outcome)) for outcome in outcomes]}


def _content_pair(value: object) -> tuple[bytes, bytes]:
    """Content another process sends along; the owner compares it with its digest."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, bytes) for part in value):
        raise InvalidInput("content is a list of digest and bytes")
    return value[0], value[1]


def _typed(exc: BaseException) -> DetentError:
    return exc if isinstance(exc, DetentError) else InvalidInput(f"the message cannot be read: {exc}")
