"""The owner's socket: other processes of the same user ask, the owner's loop decides (X-172).

One thread runs an event loop for all connections. A message is turned into commands and put into the owner's inbox like
any other request; its answer is sent when its commit is durable. A connection that sends what is not a message is
answered with an error and closed; it cannot make the owner fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from detent.engine.grants import check_asker, open_grants
from detent.engine.owner import Owner
from detent.engine.request import Make
from detent.engine.wire import (
    CLIENT_COMMANDS,
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    PROTOCOL,
    answer_of,
    answer_to_list,
    error_to_map,
    frame,
    read_message,
)
from detent.errors import DetentError, HomeError, InvalidInput, OutcomeUnknown, Refused
from detent.kernel import Command, Grant, Manifest, Outcome, RefusedManifest, Submit, VerifiedManifest
from detent.kernel.commands import command_from_list
from detent.ledger.schema import parse_manifest

UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Answers a connection may leave unread before it is closed."""

VerifyManifest = Callable[[int, tuple[bytes, bytes, bytes]], VerifiedManifest | Refused]


class Service:
    """Listens on a socket and feeds owners."""

    def __init__(self, path: Path, owners: list[Owner], verify: VerifyManifest) -> None:
        self._path = path
        self._owners = owners
        self._verify = verify
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="detent-service", daemon=True)
        self._ready: Future[None] = Future()
        self._stop: asyncio.Event | None = None
        self._descriptors: set[int] = set()
        _listening.add(self)

    def start(self) -> None:
        """Listen; returns when clients can connect."""
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def close(self) -> None:
        """Close all connections and stop listening."""
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
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

        try:
            bound = self._bind()
            self._descriptors.add(bound.fileno())
            server = await asyncio.start_unix_server(accept, sock=bound, limit=FRAME_BYTES_MAX)
        except BaseException as exc:  # noqa: BLE001 - whoever called start() must hear of it
            self._ready.set_exception(exc)
            return
        self._ready.set_result(None)
        await self._stop.wait()
        self._descriptors.discard(bound.fileno())
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _bind(self) -> socket.socket:
        """Bind the socket, 0600 from its first moment; a socket left by a dead owner is in the way and removed."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            # Before binding, so that nobody can be quicker; not by the umask, which belongs to all threads of a process.
            os.fchmod(made.fileno(), 0o600)
            with short_path(self._path) as path:
                made.bind(path)
            self._path.chmod(0o600)
        except OSError as exc:
            made.close()
            raise HomeError(
                f"the owner's socket {self._path} cannot be made: {exc.strerror or exc}",
                hint="the home must lie on a file system that allows sockets; choose another with DETENT_HOME",
            ) from exc
        return made

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                if length > FRAME_BYTES_MAX:
                    raise InvalidInput(f"a message of {length} bytes is too large (limit {FRAME_BYTES_MAX})")
                self._handle(read_message(await reader.readexactly(length)), writer)
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
                epochs = [owner.epoch for owner in self._owners]
                return self._send(
                    writer, {"id": number, "hello": {"protocol": PROTOCOL, "pid": os.getpid(), "epochs": epochs}}
                )
            if message.get("op") == "grants":
                grants = self._grants(message)
                grants.add_done_callback(lambda done: self._soon(self._reply_grants, writer, number, done))
                return None
            if message.get("op") != "ask":
                raise InvalidInput(f"unknown operation {message.get('op')!r}")
            asked = self._ask(message)
        except Exception as exc:  # noqa: BLE001 - whatever another process sends, it cannot make the owner fail
            return self._send(writer, {"id": number, "error": error_to_map(_typed(exc))})
        asked.add_done_callback(lambda done: self._soon(self._reply, writer, number, done))
        return None

    def _soon(self, reply: Callable[..., None], *arguments: object) -> None:
        # The service may have closed meanwhile; then the client has learnt already that its outcome is unknown.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(reply, *arguments)

    def _ask(self, message: dict[str, object]) -> Future[list[Outcome]]:
        """Put a client's commands into the inbox."""
        owner, items = self._owner(message), message.get("commands")
        if not isinstance(items, list):
            raise InvalidInput("an ask names a partition and a list of commands")
        makes = [self._make(item, owner.partition) for item in items]
        content = [_content_pair(pair) for pair in _list(message, "content")]
        return owner.ask(makes, content=content)

    def _grants(self, message: dict[str, object]) -> Future[list[Grant]]:
        """Have a worker's leases looked up, for one that lost the answer which granted them."""
        replica_id, after = check_asker(message.get("replica_id"), message.get("after"))
        return self._owner(message).look(lambda kernel: open_grants(kernel, replica_id, after))

    def _owner(self, message: dict[str, object]) -> Owner:
        partition = message.get("partition")
        if type(partition) is not int or not 0 <= partition < len(self._owners):
            raise InvalidInput(f"a request names a partition from 0 to {len(self._owners) - 1}")
        return self._owners[partition]

    def _make(self, item: object, partition: int) -> Make:
        if not isinstance(item, list) or len(item) < 2 or item[0] not in CLIENT_COMMANDS:
            raise InvalidInput("not a command that another process may ask for")
        if item[0] == "submit":
            return self._make_submit(item, partition)
        command: Command = command_from_list([item[0], 0, *item[2:]])
        return lambda tick: replace(command, tick=tick)

    def _make_submit(self, item: list[object], partition: int) -> Make:
        """A job's submission; one whose manifest does not verify goes to the kernel, too, and is refused there."""
        try:
            _, _, body, key_id, signature, run_id, request = item
        except ValueError:
            raise InvalidInput("a submission is a manifest, a key id, a signature, a run and a request") from None
        if not (isinstance(body, bytes) and isinstance(key_id, bytes) and isinstance(signature, bytes)):
            raise InvalidInput("a signed manifest has the bytes of a body, a key id and a signature")
        verified = self._verify(partition, (body, key_id, signature))
        manifest = _refused_manifest(body, verified) if isinstance(verified, Refused) else verified
        return lambda tick: Submit(tick, manifest, run_id, request)  # type: ignore[arg-type] # The kernel looks at both.

    def _reply_grants(self, writer: asyncio.StreamWriter, number: object, done: Future[list[Grant]]) -> None:
        error = done.exception()
        if error is not None:
            return self._send(writer, {"id": number, "error": error_to_map(error)})
        return self._send(writer, {"id": number, "grants": [list(grant) for grant in done.result()]})

    def _reply(self, writer: asyncio.StreamWriter, number: object, done: Future[list[Outcome]]) -> None:
        error = done.exception()
        if error is not None:
            return self._send(writer, {"id": number, "error": error_to_map(error)})
        answers = [answer_to_list(answer_of(outcome)) for outcome in done.result()]
        try:
            return self._send(writer, {"id": number, "answers": answers})
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


_listening: weakref.WeakSet[Service] = weakref.WeakSet()


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


def _refused_manifest(body: bytes, refusal: Refused) -> RefusedManifest:
    """A manifest that did not verify, under the job it names, if it names one."""
    claimed = parse_manifest(body)
    return RefusedManifest(refusal, claimed.job_id if isinstance(claimed, Manifest) else None)


def _list(message: dict[str, object], name: str) -> list[object]:
    value = message.get(name, [])
    if not isinstance(value, list):
        raise InvalidInput(f"{name} must be a list")
    return value


def _content_pair(value: object) -> tuple[bytes, bytes]:
    """Content another process sends along; the owner compares it with its digest."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, bytes) for part in value):
        raise InvalidInput("content is a list of digest and bytes")
    return value[0], value[1]


def _typed(exc: BaseException) -> DetentError:
    return exc if isinstance(exc, DetentError) else InvalidInput(f"the message cannot be read: {exc}")
