"""`detent.ordered_map` inside a flow: nothing runs, a step is recorded that will be the ordered run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import InvalidInput
from detent.sdk.options import duration
from detent.sdk.reference import refer
from detent.sdk.step import Step

if TYPE_CHECKING:
    from detent.sdk.recording import Recording

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
    from detent.sdk.task import Task  # noqa: PLC0415 - a function alone needs none of it

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
