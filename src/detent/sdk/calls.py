"""A call of a task as the engine submits it: the function by name, the arguments as stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from detent.contract import from_document
from detent.contract.step_limits import priority_of, retries_of, timeout_ms_of
from detent.errors import InvalidInput
from detent.executor.annotations import refuse_return
from detent.jobs.order import Call, JobLimits, Retries
from detent.reuse.path_arguments import input_paths
from detent.runs.single_jobs import JobRequest
from detent.sdk.bound import BoundAlone, stored_value
from detent.sdk.recording import Recording
from detent.sdk.task import Task
from detent.store.content import ContentFiles

MakeCall: TypeAlias = Callable[[Sequence[Any], dict[str, Any], bool | None, Mapping[str, str]], JobRequest]


def caller(function: Callable[..., Any], files: ContentFiles) -> MakeCall:
    """What makes calls of one function: everything about it is checked once, here.

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
    )
    reuses = task.options_of().cache is True
    priority = priority_of(step, binding)
    env = dict(binding.env)
    label = str(binding.target)
    refuse_return(label, contract.base)

    def request(
        args: Sequence[Any], kwargs: dict[str, Any], reuse: bool | None, named: Mapping[str, str]
    ) -> JobRequest:
        positional, keywords = task.arguments(tuple(args), kwargs)
        stored_args = tuple(
            stored_value(value, f"{task.__name__}(#{place + 1})", files) for place, value in enumerate(positional)
        )
        stored_keywords = {
            f"${name}" if name[:1] == "$" else name: stored_value(value, f"{task.__name__}({name}=)", files)
            for name, value in keywords.items()
        }
        call = Call(
            kind=binding.kind.value,
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

    return request


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
    if binding.resources:
        raise InvalidInput(
            f"task {task.__name__!r} declares resources, but an ordered run hands out items in chunks and ignores them",
            hint="leave resources= out there, as in task.options(resources=None), and give the run fewer workers",
        )
    return BoundAlone(
        task.__name__, str(binding.target), contract.base, retries_of(step, binding), timeout_ms_of(step, binding)
    )
