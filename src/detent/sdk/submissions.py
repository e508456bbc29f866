"""What every client does with calls of functions, before they go to a home here or to a server: check, name, and count them.

`Client` and `RemoteClient` differ in where a prepared call goes and how its result comes back, and in nothing that is said here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from detent.errors import InvalidInput
from detent.sdk.options import Duration, check_policies, refuse_ambiguous, waiting_seconds
from detent.sdk.outcomes import Left, TaskFailed

if TYPE_CHECKING:
    from detent.runs.submit.calls import JobRequest
    from detent.sdk.calls import MakeCall, StoreArguments
    from detent.sdk.flow import Flow
    from detent.store.content import ContentFiles

HandleT = TypeVar("HandleT")
"""The handle of a single job."""
RunT = TypeVar("RunT")
"""The handle of a run of a flow."""


class Outcome(ABC):
    """The handle of something that was submitted and gives a result."""

    @abstractmethod
    def result(self, timeout: Duration | None = None) -> Any:
        """What it returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time.

        ``timeout`` is a number of seconds, a text such as ``"5m"``, or a timedelta.
        """

    def exception(self, timeout: Duration | None = None) -> TaskFailed | None:
        """Why the task failed; None if it succeeded."""
        try:
            self.result(timeout)
        except TaskFailed as exc:
            return exc
        return None


class Submissions(ABC, Generic[HandleT, RunT]):
    """Submits calls of functions, and flows. Safe for several threads."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[Any, tuple[MakeCall, StoreArguments]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An exception is not held back for a minute; what runs begins anew with the next worker.
        self.close(now=kind is not None)

    @overload
    def submit(self, function: Flow[..., Any], /, *args: Any, **kwargs: Any) -> RunT: ...
    @overload
    def submit(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        reuse: bool | None = None,
        idempotency_key: str | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        **kwargs: Any,
    ) -> HandleT: ...

    def submit(
        self,
        function: Any,
        /,
        *args: Any,
        reuse: bool | None = None,
        idempotency_key: str | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Submit one call; when this returns it is durable. A full queue makes it wait.

        A function runs each time, unless ``reuse=True`` or its task's ``cache=True`` lets an earlier result answer, or the
        same ``idempotency_key`` was given before (see `submit_call`). A flow begins a run, which reuses as flows do, or
        takes up the unfinished run of the same flow with the same arguments.

        ``quota``, ``lease`` and ``backoff`` name policies of the home's ``config.toml`` for this job, instead of its task's.
        """
        from detent.sdk.flow import Flow  # noqa: PLC0415 - `import detent` stays cheap

        policies = {"quota": quota, "lease": lease, "backoff": backoff}
        options = {"reuse": reuse, "idempotency_key": idempotency_key, **policies}
        given = {name: value for name, value in options.items() if value is not None}
        if given:
            refuse_ambiguous(function, given)
        if isinstance(function, Flow):
            if given:
                raise InvalidInput(
                    f"{next(iter(given))}= is for single functions, and {function!r} is a flow",
                    hint="leave it out: a flow reuses what its steps did before",
                )
            return self._submit_flow(function, args, kwargs)
        return self.submit_call(function, args, kwargs, reuse=reuse, idempotency_key=idempotency_key, **policies)

    def submit_call(  # noqa: PLR0913 - options, all by name
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        reuse: bool | None = None,
        idempotency_key: str | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        timeout: Duration | None = None,
    ) -> HandleT:
        """Like `submit`, with the arguments in one place and options beside them.

        ``reuse=True`` takes the result of an equal call that succeeded, or waits for one under way with the same limits;
        ``reuse=False`` runs it even if its task allows reuse. The same ``idempotency_key`` with the same call within a day gives
        the same job; with another call it is refused (``IDEMPOTENCY_KEY_REUSED``). When as many keys are
        remembered as the settings allow, a new one is refused (`IdempotencyKeysFull`). ``timeout`` bounds the wait for room
        in a full queue.
        """
        seconds = waiting_seconds("timeout", timeout)
        call = self._call(function, args, {} if kwargs is None else kwargs, reuse, _named(quota, lease, backoff))
        return self._submit_one(call, seconds, idempotency_key)

    def submit_many(
        self,
        function: Callable[..., Any],
        calls: Iterable[Sequence[Any]],
        *,
        reuse: bool | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        timeout: Duration | None = None,
    ) -> list[HandleT]:
        """Submit one call for each tuple of arguments, many in one commit; the handles in the same order.

        Each is run, or reused, as `submit` would do it.
        """
        seconds = waiting_seconds("timeout", timeout)
        policies = _named(quota, lease, backoff)
        return self._submit_all([self._call(function, args, {}, reuse, policies) for args in calls], seconds)

    def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        reuse: bool | None = None,
        timeout: Duration | None = None,
        chunk: int | None = None,
    ) -> Iterator[Any]:
        """The results of one call for each element, in order, as they come; stops at the first that failed.

        Each is run, or reused, as `submit` would do it. Short calls run in chunks, one job for many of them, each with an
        outcome, retries, output and proof of its own. ``chunk`` is how many; without it that is chosen by how long they take.
        ``chunk=1`` gives each call its own job, with a lease and a place in the queue. A server does that for every call.
        """
        from detent.runs.submit.chunk_sizes import check_chunk  # noqa: PLC0415 - `import detent` stays cheap

        if not iterables:
            raise InvalidInput("map needs something to go through", hint="client.map(function, [1, 2, 3])")
        check_chunk(chunk, "chunk")
        return self._mapped(function, iterables, reuse, waiting_seconds("timeout", timeout), chunk)

    # -- where a client puts things ------------------------------------------------------------------------------------

    @abstractmethod
    def close(self, timeout: Duration | None = None, *, now: bool = False) -> Left:
        """Finish; says what was left."""

    @property
    @abstractmethod
    def _content(self) -> ContentFiles:
        """Where the files of arguments are kept until they are submitted."""

    @abstractmethod
    def _submit_flow(self, flow: Flow[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> RunT:
        """Begin a run."""

    @abstractmethod
    def _submit_one(self, call: JobRequest, seconds: float | None, idempotency_key: str | None) -> HandleT:
        """Submit one prepared call."""

    @abstractmethod
    def _submit_all(self, calls: Sequence[JobRequest], seconds: float | None) -> list[HandleT]:
        """Submit prepared calls, many in one commit."""

    @abstractmethod
    def _mapped(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        reuse: bool | None,
        timeout: float | None,
        chunk: int | None,
    ) -> Iterator[Any]:
        """The results of many calls, in order."""

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        reuse: bool | None,
        policies: Mapping[str, str],
    ) -> JobRequest:
        return self._caller(function)[0](args, kwargs, reuse, policies)

    def _caller(self, function: Callable[..., Any]) -> tuple[MakeCall, StoreArguments]:
        known = self._calls.get(id(function))
        if known is None or known[0] is not function:
            from detent.sdk.calls import caller  # noqa: PLC0415 - `import detent` stays cheap

            known = self._calls[id(function)] = (function, caller(function, self._content))
        return known[1]


def _named(quota: str | None, lease: str | None, backoff: str | None) -> dict[str, str]:
    """The policies that a submission names itself."""
    policies = {"quota": quota, "lease": lease, "backoff": backoff}
    named = {kind: name for kind, name in policies.items() if name is not None}
    check_policies(named)
    return named
