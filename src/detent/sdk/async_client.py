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

from detent.sdk.client import CLOSE_SECONDS, Client

if TYPE_CHECKING:
    from detent.inspect.fetch_artifacts import Fetched
    from detent.inspect.job_results import JobResultView
    from detent.sdk.options import Duration
    from detent.sdk.outcomes import Left, TaskFailed
    from detent.sdk.run import Run

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

    async def run(self, timeout: Duration | None = None) -> Run:  # noqa: ASYNC109
        """The run of a flow once it has ended, with all its steps."""
        found: Run = await self._client.wait(partial(self._handle.run, timeout))
        return found

    async def fetch(self, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False) -> list[Fetched]:
        """Copy the artifacts of a platform job into a directory, all or those with these ids, numbers or names."""
        found: list[Fetched] = await self._client.wait(partial(self._handle.fetch, directory, ids, force=force))
        return found

    async def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        return bool(await self._client.ask(self._handle.cancel))

    @property
    def deduplicated(self) -> bool:
        """Whether it stands for a job or run that was submitted before."""
        return bool(self._handle.deduplicated)

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

    async def result_of(self, job: str | AsyncHandle, timeout: Duration | None = None) -> JobResultView:  # noqa: ASYNC109
        """The result envelope of a platform job, with its proof; waits for the job's end."""
        return await self.wait(partial(self._opened().result_of, _job_id(job), timeout))

    async def fetch_artifacts(
        self, job: str | AsyncHandle, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False
    ) -> list[Fetched]:
        """Copy the artifacts of a platform job into a directory; existing files are kept unless ``force`` is set."""
        return await self.wait(partial(self._opened().fetch_artifacts, _job_id(job), directory, ids, force=force))

    def handle(self, job_id: str) -> AsyncHandle:
        """A handle for a job that was submitted earlier, by any process."""
        return AsyncHandle(self, self._opened().handle(job_id))

    async def close(self, timeout: Duration | None = CLOSE_SECONDS, *, now: bool = False) -> Left | None:  # noqa: ASYNC109
        """Finish, as `Client.close` does; says what was left."""
        client, self._client = self._client, None
        left = None if client is None else await self.wait(partial(client.close, timeout, now=now))
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


def _job_id(job: str | AsyncHandle) -> str:
    return job if isinstance(job, str) else job.job_id
