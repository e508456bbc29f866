"""`detent.AsyncClient`: a client whose methods are awaited, for a home here or behind a server.

    async with detent.AsyncClient("https://jobs.example.org", key=KEY) as client:
        handles = await asyncio.gather(*(client.submit(resize, name) for name in names))
        results = await asyncio.gather(*(handle.result() for handle in handles))

It is the same client on threads of its own: those that wait for results are apart from those that submit, so that no wait holds up a
submission. At most `WAITING_MAX` results are waited for at once; further ones take their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from detent.sdk.client import Client

if TYPE_CHECKING:
    from detent.sdk.options import Duration
    from detent.sdk.outcomes import Left, TaskFailed

T = TypeVar("T")
WAITING_MAX: Final = 64
ASKING_MAX: Final = 4
_END: Final = object()


class AsyncHandle:
    """A job or run that was submitted."""

    def __init__(self, client: AsyncClient, handle: Any) -> None:
        self._client, self._handle = client, handle

    @property
    def job_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return str(self._handle.job_id)

    @property
    def run_id(self) -> str:
        """The same for a run of a flow."""
        return str(self._handle.run_id)

    async def status(self) -> Any:
        """Where the job stands now, by the ledger."""
        return await self._client.ask(lambda: self._handle.status)

    async def done(self) -> bool:
        """Whether the job has ended."""
        return bool(await self._client.ask(self._handle.done))

    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - as the other client has it
        """What the task returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time."""
        return await self._client.wait(partial(self._handle.result, timeout))

    async def exception(self, timeout: Duration | None = None) -> TaskFailed | None:  # noqa: ASYNC109
        """Why the task failed; None if it succeeded."""
        found: TaskFailed | None = await self._client.wait(partial(self._handle.exception, timeout))
        return found

    async def outcome(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109
        """The result envelope of a platform job."""
        return await self._client.wait(partial(self._handle.outcome, timeout))

    async def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        return bool(await self._client.ask(self._handle.cancel))

    def __repr__(self) -> str:
        return repr(self._handle)


class AsyncClient:
    """The methods of `Client`, awaited. Takes the same arguments; for one event loop."""

    def __init__(self, home: str | Path | None = None, **options: Any) -> None:
        self._make = partial(Client, home, **options)
        self._client: Client | None = None
        self._asking = ThreadPoolExecutor(ASKING_MAX, "detent-async-ask")
        self._waiting = ThreadPoolExecutor(WAITING_MAX, "detent-async-wait")

    async def __aenter__(self) -> Self:
        self._client = await self.ask(self._make)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(now=kind is not None)

    async def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AsyncHandle:
        """Submit one call, or a flow; when this returns it is durable."""
        return AsyncHandle(self, await self.ask(partial(self._opened().submit, function, *args, **kwargs)))

    async def submit_call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncHandle:
        """Like `submit`, with the arguments in one place and options beside them."""
        return AsyncHandle(self, await self.ask(partial(self._opened().submit_call, function, args, kwargs, **options)))

    async def submit_many(
        self, function: Callable[..., Any], calls: Iterable[Sequence[Any]], **options: Any
    ) -> list[AsyncHandle]:
        """Submit one call for each tuple of arguments, many in one commit; the handles in the same order."""
        handles = await self.ask(partial(self._opened().submit_many, function, calls, **options))
        return [AsyncHandle(self, handle) for handle in handles]

    async def submit_job(self, payload: Any, **options: Any) -> AsyncHandle:
        """Submit a platform job by its payload."""
        return AsyncHandle(self, await self.ask(partial(self._opened().submit_job, payload, **options)))

    async def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> AsyncIterator[Any]:
        """The results of one call for each element, in order, as they come; stops at the first that failed."""
        results = await self.ask(partial(self._opened().map, function, *iterables, **options))
        while (value := await self.wait(partial(next, results, _END))) is not _END:
            yield value

    def handle(self, job_id: str) -> AsyncHandle:
        """A handle for a job that was submitted earlier, by any process."""
        return AsyncHandle(self, self._opened().handle(job_id))

    async def close(self, *, now: bool = False) -> Left | None:
        """Finish, as `Client.close` does; says what was left."""
        client, self._client = self._client, None
        left = None if client is None else await self.wait(partial(client.close, now=now))
        self._asking.shutdown(wait=False)
        self._waiting.shutdown(wait=False)
        return left

    async def ask(self, question: Callable[[], T]) -> T:
        """Do something short on one of the threads for that."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, question)

    async def wait(self, question: Callable[[], T]) -> T:
        """Do something that may take long on one of the threads for that."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, question)

    def _opened(self) -> Client:
        if self._client is None:
            self._client = self._make()
        return self._client
