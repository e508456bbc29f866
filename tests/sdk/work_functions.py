"""Functions that tests submit: in a module of their own, as users' functions are."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import detent


def square(x: int) -> int:
    return x * x


def same(value: Any, **more: Any) -> Any:
    return [value, more] if more else value


async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


def boom(message: str = "boom") -> None:
    raise ValueError(message)


def forever(marker: str) -> None:
    Path(marker).write_text(str(os.getpid()))
    while True:
        time.sleep(60)


def shout(file: detent.File) -> detent.File:
    return detent.File.from_bytes(file.read_bytes().upper(), name="loud.txt")


def large() -> str:
    return "x" * (17 * 1024 * 1024)


@detent.task(retries=2, retry_on=["USER_CODE_ERROR"], timeout="30s")
def flaky(path: str) -> int:
    tried = int(Path(path).read_text()) + 1 if Path(path).exists() else 1
    Path(path).write_text(str(tried))
    if tried < 2:
        raise RuntimeError("not yet")
    return detent.context().attempt


@detent.task(cache=False)
def pid(_number: int) -> int:
    return os.getpid()


def whisper() -> detent.File:
    return detent.File.from_bytes(b"whisper", name="quiet.txt")


@detent.task
def words_of(text: detent.File) -> int:
    return len(text.read_bytes().split())


@detent.flow
def carried(path: str) -> Any:
    return {"words": words_of(detent.File.from_bytes(b"a b")), "file": detent.File(path)}


@detent.flow
def counted(path: str) -> Any:
    listed = [detent.File.from_bytes(b"a b"), detent.File(path)]
    return {"one": words_of(detent.File(path)), "each": words_of.map(listed), "file": detent.File(path)}


def waits_for(gate: str) -> str:
    while not Path(gate).exists():
        time.sleep(0.01)
    return gate


@detent.task(priority=1)
def low(number: int) -> int:
    return number


@detent.task(priority=10)
def high(number: int) -> int:
    return number


@detent.task(inputs=())
def marked(path: str) -> str:
    with Path(path).open("a") as file:
        file.write("x")
    return path


def takes_reuse(reuse: bool = False) -> bool:
    return reuse


@detent.flow
def waiting_flow(gate: str) -> Any:
    return detent.task(waits_for).options(inputs=())(gate)


def marked_slowly(path: str) -> str:
    time.sleep(0.2)
    return marked(path)


@detent.flow
def counted_numbers(count: int) -> Any:
    return detent.task(square).map(list(range(count)))


@detent.flow
def failing_flow() -> Any:
    return detent.task(boom)("no luck")


@detent.task(quota="tiny")
def frugal(cpu_ms: int) -> int:
    end = time.process_time() + cpu_ms / 1000
    while time.process_time() < end:
        pass
    return cpu_ms


@detent.task(retries=1, retry_on=["USER_CODE_ERROR"])
def unlucky() -> None:
    raise RuntimeError("not today")


@detent.task(retries=1, retry_on=["USER_CODE_ERROR"], backoff="now")
def stumble(running: str, gate: str) -> int:
    if detent.context().attempt == 1:
        Path(running).touch()
        Path(gate).read_bytes()
        raise RuntimeError("stumbled")
    return detent.context().attempt


def called(x: int) -> list[Any]:
    here = detent.context()
    return [here.job_id, here.attempt, here.idempotency_token]


def odd_one_out(x: int) -> int:
    if x == 7:
        sys.stdout.write("about to fail\n")
        raise ValueError("seven")
    return x


def marked_once(directory: str, x: int) -> int:
    """Leave a file for each call; the one for 5 fails the first time."""
    made = sorted(Path(directory).glob(f"{x}-*"))
    (Path(directory) / f"{x}-{len(made) + 1}-{detent.context().attempt}").touch()
    if x == 5 and not made:
        raise RuntimeError("not yet")
    return x


marked_again = detent.task(retries=2, retry_on=["USER_CODE_ERROR"])(marked_once)


def dying(directory: str, x: int, how: str) -> int:
    """Leave a file for each call; the third ends its process, always or the first time only."""
    path = Path(directory) / str(x)
    first = not path.exists()
    path.write_text(f"{0 if first else int(path.read_text()) + 1}")
    if x == 3 and how == "exit":
        os._exit(7)
    if x == 3 and how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == 3 and (how == "killed" or (how == "killed once" and first)):
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def leaves_a_thread(x: int) -> int:
    if x == 2:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return os.getpid()


def changes_the_world(x: int) -> list[Any]:
    seen = [str(Path.cwd()), os.environ.get("DETENT_TEST_LEFT")]
    os.environ["DETENT_TEST_LEFT"] = str(x)
    os.chdir("/")
    return seen


def page(x: int) -> str:
    return str(x) * (3000 * x)


def as_file(x: int) -> detent.File:
    return detent.File.from_bytes(b"%d" % x, name=f"{x}.txt")


def size_of(file: detent.File) -> int:
    return len(file.read_bytes())


class Slow(Exception):
    def __str__(self) -> str:
        return "told late"


def late_message(x: int) -> int:
    if x == 1:
        raise Slow
    return x


def not_json(x: int) -> object:
    return object() if x == 1 else x


def sleeps(x: float) -> int:
    time.sleep(x)
    return os.getpid()
