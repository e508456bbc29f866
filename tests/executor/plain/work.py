"""The user's own functions that the tests run in plain processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import detent

LOADED_AS = __name__


def nothing() -> None:
    return None


def same(*positional: Any, **named: Any) -> Any:
    return [list(positional), named]


def double(text: str) -> str:
    return text + text


@detent.task
def decorated(x: int) -> int:
    return x + 1


async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x * 2


class Tools:
    @staticmethod
    def inner() -> str:
        return "inner"


def surroundings(name: str) -> list[Any]:
    return [os.environ.get(name), str(Path.cwd()), LOADED_AS, sys.modules["__main__"].__name__, os.getpid()]


def spoil() -> None:
    os.environ["SPOILT"] = "yes"
    os.environ.pop("HOME", None)
    os.chdir("/")


def read_file(file: detent.File) -> list[Any]:
    return [file.read_bytes().decode(), file.name, file.size, file.digest, file.path.read_text(), file.type]


def make_files() -> dict[str, Any]:
    Path("made.txt").write_text("from a path")
    return {"path": detent.File("made.txt"), "$list": [detent.File.from_bytes(b"bytes", name="b.bin")]}


def hand_on(file: detent.File) -> detent.File:
    return file


def missing_file() -> detent.File:
    return detent.File("nowhere.txt")


def leave(name: str, text: str) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)


def speak(out: str, err: str) -> None:
    sys.stdout.write(out + "\n")
    os.write(2, err.encode())


def speak_outside(text: str) -> None:
    subprocess.run(["/bin/echo", text], check=True)


def about() -> list[Any]:
    now = detent.context()
    return [now.job_id, now.run_id, now.attempt, now.idempotency_token, now.step, now.index, now.cancelled]


def step_by_step() -> None:
    now = detent.context()
    now.progress(0.25, "a quarter")
    now.progress(0.3, "too soon after the first")
    now.progress(1, "all")


def wrong_progress() -> None:
    detent.context().progress(2)


def answer(kind: str) -> Any:
    return {
        "tuple": {"a": [1, {"b": (1, 2)}]},
        "nan": [math.nan],
        "key": {(1, 2): 2},
        "object": object(),
        "deep": _deep(70),
        "surrogate": "\ud800",
        "integer": 1 << 4000,
        "huge": "x" * 2_000_000 if kind == "huge" else None,
    }[kind]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def long_list() -> list[int]:
    return list(range(100_000))


def raise_plain() -> NoReturn:
    raise ValueError("no: é", 3)


def raise_from_library() -> Any:
    import json

    text = "{"
    return json.loads(text)


def raise_chained() -> NoReturn:
    try:
        raise KeyError("first")
    except KeyError as exc:
        raise RuntimeError("second") from exc


def work_is_endless() -> bool:
    return True


class RaisingText(Exception):
    def __str__(self) -> str:
        raise ValueError


class EndlessText(Exception):
    def __str__(self) -> str:
        while work_is_endless():
            pass
        return ""


class StubbornText(Exception):
    def __str__(self) -> str:
        while work_is_endless():
            with contextlib.suppress(BaseException):
                ctypes.PyDLL(None).sleep(600)  # Holds the interpreter: no signal handler runs.
        return ""


class LongText(Exception):
    def __str__(self) -> str:
        return "é" * 1_000_000


def raise_odd(kind: str) -> NoReturn:
    raise {"raising": RaisingText, "endless": EndlessText, "stubborn": StubbornText, "long": LongText}[kind]


def leave_process(how: str) -> Any:
    if how == "exit":
        sys.exit(3)
    if how == "exit text":
        sys.exit("that is all")
    if how == "exit well":
        sys.exit()
    if how == "at once":
        os._exit(7)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    return None


def begin_and_wait(text: str = "begun") -> NoReturn:
    # Not `signal.pause`: that would sleep through a signal that comes just before it, and who hears "begun" may be quick.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    detent.context().progress(0, text)
    while True:
        os.read(reading, 1)


def begin_to_keep(content: str) -> None:
    """Stop in the middle of writing a file to the content store."""
    from detent.store.content import ContentFiles

    def pieces() -> Iterator[bytes]:
        yield b"half"
        begin_and_wait()

    ContentFiles(Path(content)).put(pieces())


def wait_for(path: str) -> str:
    detent.context().progress(0, "begun")
    return Path(path).read_text()


def mark_and_wait(mark: str, gate: str) -> str:
    """Leave a file, and wait for another."""
    Path(mark).touch()
    while not Path(gate).exists():
        time.sleep(0.01)
    return "on"


def clean_up(path: str) -> NoReturn:
    try:
        begin_and_wait()
    finally:
        Path(path).write_text(f"cancelled: {detent.context().cancelled}")


def hold_interpreter() -> None:
    detent.context().progress(0, "begun")
    ctypes.PyDLL(None).sleep(600)


def refuse_to_stop() -> NoReturn:
    detent.context().progress(0, "begun")
    while True:
        with contextlib.suppress(BaseException):
            signal.pause()


def print_forever(first: int) -> NoReturn:
    line = "0123456789abcdef" * 64
    for count in range(sys.maxsize):
        print(line)  # noqa: T201 - what a user would write
        if count * 1024 == first:
            detent.context().progress(0.5, "much")
    raise AssertionError


def fork_and_leave(twice: bool) -> int:
    reading, writing = os.pipe()
    if os.fork() == 0:
        if twice and os.fork() != 0:
            os._exit(0)
        os.setsid()
        os.write(writing, str(os.getpid()).encode())
        while True:
            signal.pause()
    return int(os.read(reading, 20))


def fork_and_return(path: str) -> str:
    """The fork comes back from this function, too, and must not be heard."""
    pid = os.fork()
    if pid == 0:
        return "the fork's"
    os.waitpid(pid, 0)
    Path(path).touch()
    return "the worker's"


def fork_and_raise() -> str:
    pid = os.fork()
    if pid == 0:
        raise ValueError("the fork's")
    return str(os.waitpid(pid, 0)[1])


def leave_thread() -> int:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


def pid() -> int:
    return os.getpid()


def use_memory(size: int) -> int:
    return len(bytearray(size))


def note_number(path: str, number: int, pause: bool) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{number}\n".encode())
    os.close(handle)
    if pause:
        begin_and_wait(str(number))
    return number


if __name__ == "__main__":
    raise AssertionError("it was run as a script")


def loaded(name: str) -> bool:
    """Whether a module was loaded before it was asked for."""
    return name in sys.modules


def lose_streams(how: str, path: str) -> None:
    """Do to the standard streams what a daemon does, and what it forgets."""
    if how == "close":
        os.closerange(0, 3)
    elif how == "close with a rest":
        os.closerange(0, 3)
        with contextlib.suppress(OSError):
            print("a rest")  # noqa: T201
    elif how == "redirect":
        with open(path, "w+") as file:  # noqa: PTH123 - a worker has no pathlib
            for number in range(3):
                os.dup2(file.fileno(), number)
    else:
        sys.stdout.close()
        sys.stderr.close()


def use_streams(path: str) -> list[Any]:
    """Use them as if nothing had happened."""
    with open(path, "w") as file:  # noqa: PTH123
        print("to stdout")  # noqa: T201
        print("to stderr", file=sys.stderr)  # noqa: T201
        said = subprocess.run(["cat"], check=True, stdout=subprocess.PIPE).stdout
        return [file.fileno() > 2, said.decode(), os.read(0, 10).decode()]


def speak_for_the_worker(words: list[list[Any]], knowing: bool = False) -> str:
    """Write to the socket of its own worker: messages of a kind, about itself or another task, with any bytes behind,
    and with the token by which the worker is known, if it looks for that.
    """
    import stat
    import struct

    from detent.executor.plain import current

    running = current.running()
    assert running is not None
    frame: Any = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "token"):
        frame = frame.f_back
    token = frame.f_locals["self"].token if knowing else b""
    for kind, other, rest in words:
        number = running.number if other is None else other
        message = (b"" if kind is None else struct.pack("<BQ", kind, number)) + bytes.fromhex(rest) + token
        for handle in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(handle.name)).st_mode):
                    os.write(int(handle.name), message)
    return "spoke"


def hold_in_children(count: int, size: int, gate: str) -> None:
    """Hold memory in several processes at once, until the gate is opened for writing."""
    children = []
    for _ in range(count):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            held = bytearray(size)
            held[::4096] = b"x" * len(held[::4096])
            os.write(writing, b"x")
            os.open(gate, os.O_RDONLY)
            os._exit(0)
        os.read(reading, 1)
        children.append(pid)
    detent.context().progress(0.5, "holding")
    for pid in children:
        os.waitpid(pid, 0)


def write_and_read(path: str, size: int) -> int:
    Path(path).write_bytes(b"x" * size)
    return len(Path(path).read_bytes())


def is_loaded(name: str) -> bool:
    """Whether this worker has a module."""
    return name in sys.modules
