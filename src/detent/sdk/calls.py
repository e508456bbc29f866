"""A call of a task as the engine submits it: the function by name, the arguments as stored values.

`detent.ordered_map` inside a flow: nothing runs, a step is recorded that will be the ordered run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from detent.contract import from_document
from detent.contract.model import priority_of, retries_of, timeout_ms_of
from detent.errors import InvalidInput
from detent.executor.annotations import refuse_return
from detent.jobs.order import Call, JobLimits, Retries
from detent.reuse.path_arguments import input_paths
from detent.runs.submit.calls import JobRequest
from detent.sdk.bound import BoundAlone, stored_value
from detent.sdk.options import duration
from detent.sdk.recording import Recording, Step
from detent.sdk.reference import refer
from detent.sdk.task import Task
from detent.store.content import ContentFiles


class MakeCall(Protocol):
    """Makes the calls of one function."""

    def __call__(
        self, args: Sequence[Any], kwargs: dict[str, Any], reuse: bool | None, named: Mapping[str, str]
    ) -> JobRequest: ...


StoreArguments: TypeAlias = Callable[[Sequence[Any], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def caller(function: Callable[..., Any], files: ContentFiles) -> tuple[MakeCall, StoreArguments]:
    """What makes calls of one function, and what makes the arguments of one: everything about it is checked once, here.

    A call reuses if it says so, and where it says nothing, if the task says ``cache=True`` (X-190).
    """
    task = function if isinstance(function, Task) else Task(function)
    recording = Recording(task.__name__)
    _ = task.record_alone(recording)
    contract = from_document(recording.document(), name=task.__name__, base=recording.base)
    (step,) = contract.plain_steps
    binding = contract.bindings[step.step_id]
    said = retries_of(step, binding)
    limits = JobLimits(
        wall_ms=timeout_ms_of(step, binding),
        retries=Retries() if said is None else Retries(*said),
        resources=binding.resources,
        policies=binding.policies,
        pool=binding.pool,
        labels=binding.labels,
    )
    reuses = task.options_of().cache is True
    priority = priority_of(step, binding)
    env = dict(binding.env)
    label, kind = str(binding.target), binding.kind.value
    refuse_return(label, contract.base)

    def stored(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, keywords = task.arguments(tuple(args), kwargs)
        return tuple(
            stored_value(value, f"{task.__name__}(#{place + 1})", files) for place, value in enumerate(positional)
        ), {
            f"${name}" if name[:1] == "$" else name: stored_value(value, f"{task.__name__}({name}=)", files)
            for name, value in keywords.items()
        }

    def request(
        args: Sequence[Any], kwargs: dict[str, Any], reuse: bool | None, named: Mapping[str, str]
    ) -> JobRequest:
        stored_args, stored_keywords = stored(args, kwargs)
        call = Call(
            kind=kind,
            target=binding.target,
            base=contract.base,
            arguments=stored_args,
            keywords=stored_keywords,
            env=env,
            cwd=binding.cwd,
            version=binding.version,
            cache=binding.cache,
            inputs=_inputs(task, stored_args, stored_keywords),
            outputs=binding.outputs,
        )
        held = replace(limits, policies={**binding.policies, **named}) if named else limits
        return JobRequest(call, label, held, priority, reuses if reuse is None else reuse)

    return request, stored


def _inputs(task: Task[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The paths whose content counts for one call."""
    places = (str(place + 1) for place in range(len(arguments)))
    templates = task.inputs_for([*keywords, *places])
    return None if templates is None else input_paths(templates, arguments, keywords)


def bound_alone(function: Callable[..., Any]) -> BoundAlone:
    """How a function is called by name in another process, with any arguments."""
    task = function if isinstance(function, Task) else Task(function)
    recording = Recording(task.__name__)
    _ = task.record_alone(recording)
    contract = from_document(recording.document(), name=task.__name__, base=recording.base)
    (step,) = contract.plain_steps
    binding = contract.bindings[step.step_id]
    if binding.policies:
        raise InvalidInput(
            f"task {task.__name__!r} names a {next(iter(binding.policies))}, but the chunks of an ordered run are jobs of the run",
            hint="leave it out there, as in task.options(quota=None), and write it under [tenants.local] in config.toml",
        )
    if binding.pool is not None or binding.labels:
        raise InvalidInput(
            f"task {task.__name__!r} names a pool or labels, but only the home's own workers run an ordered map",
            hint="leave them out there, as in task.options(pool=None, labels=None)",
        )
    if binding.resources:
        raise InvalidInput(
            f"task {task.__name__!r} declares resources, but an ordered run hands out items in chunks and ignores them",
            hint="leave resources= out there, as in task.options(resources=None), and give the run fewer workers",
        )
    return BoundAlone(
        task.__name__, str(binding.target), contract.base, retries_of(step, binding), timeout_ms_of(step, binding)
    )


_OF_AN_ITEM = frozenset({"retry", "timeout"})
"""What is said about a task that is an item's here, and not the step's."""


def record_map(
    recording: Recording,
    items: Iterable[Any] | Step,
    compute: Callable[[Any], Any],
    commit: object,
    *,
    settings: Mapping[str, Any],
    name: str | None,
    of_the_run: Mapping[str, object],
) -> Step:
    """Record the step. ``settings`` are the contract's own words; ``of_the_run`` is what a step cannot choose.

    No code iterates over the results of a step, so it needs a destination; its result is the summary.
    """
    task = compute if isinstance(compute, Task) else Task(compute)
    shown = f"ordered_map({task.__name__})"
    if given := [key for key, value in of_the_run.items() if value is not None]:
        raise InvalidInput(
            f"{shown}: {given[0]} belongs to the run, not to a step of it", hint=f"leave {given[0]}= out"
        )
    reference = refer(task.__wrapped__)
    said = {
        "items": recording.value(items if isinstance(items, Step) else list(items), f"{shown}(items=...)"),
        "compute": reference.target,
        "commit": _destination(commit, shown),
        **settings,
    }
    options = task.options_of()
    if options.timeout is not None:
        said.setdefault("item_timeout", duration(options.timeout))
    if options.retries:
        said["retries"] = options.retries
    run = {"map": said} if options.version is None else {"map": said, "version": options.version}
    about = {key: value for key, value in options.keys().items() if key not in _OF_AN_ITEM}
    return recording.add(name or options.name or task.__name__, reference, {"run": run, **about})


def _destination(commit: object, shown: str) -> str:
    if isinstance(commit, str):
        return commit
    if callable(commit):
        return refer(commit).target
    from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

    what = "needs a destination" if commit is None else f"cannot take {a_or_an(type(commit))} for its destination"
    raise InvalidInput(
        f"{shown} {what}: as a step of a flow its results go somewhere",
        hint='give a text such as commit="jsonl:FILE", or a function at the top of a module',
    )
