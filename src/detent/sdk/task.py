"""`detent.task`: a function that can be a step of a flow, and stays the function it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from itertools import islice
from types import ModuleType
from typing import Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from detent.errors import InvalidInput
from detent.sdk.options import Options, TaskOptions, options_from
from detent.sdk.recording import Recording, Step, current
from detent.sdk.reference import Reference, refer, unwrapped

P = ParamSpec("P")
R = TypeVar("R")

MAPPED_MAX: Final = 100_000
"""Elements of a list that a step is mapped over in Python; a list that another step makes has its own bound."""

_BY_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Task(Generic[P, R]):
    """A function that records a step when a flow calls it, and runs when called anywhere else.

    Inside a flow the call gives a handle (`detent.sdk.recording.Step`) that stands for the result. Type checkers see the
    function's own types in both places: a flow reads like the plain Python that it also is.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(
        self, function: Callable[P, R], options: Options | None = None, *, after: tuple[Any, ...] = ()
    ) -> None:
        self._static = isinstance(function, staticmethod)
        self.__wrapped__ = function.__func__ if isinstance(function, staticmethod) else function
        _check_function(self.__wrapped__)
        self._options = options or Options()
        self._after = after
        self._reference: Reference | None = None
        self._signature: inspect.Signature | bool | None = False
        self._plain_counts = range(0)
        """How many arguments without names fit by their places alone, so that nothing else has to be looked at."""
        self._is_async = inspect.iscoroutinefunction(unwrapped(self.__wrapped__))
        update_wrapper(self, self.__wrapped__)
        if self._is_async and hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; inside a flow, record the call as a step."""
        recording = current()
        if recording is None:
            return self.__wrapped__(*args, **kwargs)
        positional, keywords = self.arguments(args, kwargs)
        run: dict[str, Any] = {}
        if keywords:
            run["with"] = {name: self._value(recording, value, f"{name}=") for name, value in keywords.items()}
        if positional:
            run["args"] = [self._value(recording, value, f"#{place + 1}: ") for place, value in enumerate(positional)]
        return cast("R", self._record(recording, run))

    def map(self, items: Iterable[Any], /, *others: Any, **fixed: Any) -> list[R]:
        """Run once for each item, and give the results as a list in the order of the items (X-185).

        ``items`` is a list, or inside a flow a step whose result will be one. Each item is handed over as the first
        parameter that is not in ``fixed``. The list of an async task is awaited: ``await fetch.map(names)``.

        In a flow, short elements share a job, with an outcome, a retry and a log each; how many do follows from how long they take.
        ``chunk=1`` gives each a job of its own, ``chunk=50`` has 50 share one. A function with a parameter ``chunk`` gets that
        value instead; say it there by ``options(chunk=...)``.
        """
        if others:
            raise InvalidInput(
                f"{self.__name__}.map() goes through one list, and {1 + len(others)} were given",
                hint="name what is the same for all, as in map(items, rate=2); or pair them up: map(list(zip(...)))",
            )
        options = self._options
        if "chunk" in fixed and not self._takes("chunk"):
            options = replace(options, chunk=fixed.pop("chunk"))
        name = self._mapped_name(fixed)
        recording = current()
        if recording is None:
            results = [self.__wrapped__(**{name: item}, **fixed) for item in self._elements(items)]  # type: ignore[call-arg]
            return cast("list[R]", _gathered(results)) if self._is_async else results
        listed = items if isinstance(items, Step) else list(self._elements(items))
        run = {"with": {key: self._value(recording, value, f"{key}=") for key, value in fixed.items()}} if fixed else {}
        extra: dict[str, Any] = {"map": {name: self._value(recording, listed, f"{name}=")}}
        if options.chunk is not None:
            extra["chunk"] = options.chunk
        return cast("list[R]", self._record(recording, run, extra))

    def after(self, *steps: Any) -> Task[P, R]:
        """The same task, to be run after these steps although it takes nothing from them: ``load.after(check)(rows)``."""
        recording = current()
        if recording is not None:
            recording.needs(steps, f"{self.__name__}.after()")
        return self._changed(self._options, (*self._after, *steps))

    def options(self, **changed: Unpack[TaskOptions]) -> Task[P, R]:
        """The same task with other options: ``train.options(name="train_small", timeout="5m")(rows)``."""
        known = options_from(changed, f"{self.__name__}.options()")
        return self._changed(replace(self._options, **{name: getattr(known, name) for name in changed}), self._after)

    def options_of(self) -> Options:
        """What is said about the task beside its code."""
        return self._options

    def record_alone(self, recording: Recording) -> Step:
        """Record the task without arguments: its options, which hold for every call.

        Its inputs may name arguments, and are left to `inputs_for`.
        """
        return self._record(recording, {}, {"inputs": []})

    def inputs_for(self, given: Iterable[str]) -> list[str] | None:
        """The declared inputs for a call with these arguments, defaults put in for the others; None: nothing is declared."""
        declared = self._options.inputs
        if declared is None:
            return None
        templates = [declared] if isinstance(declared, str) else [*declared]
        from detent.contract.references import argument_names, filled  # noqa: PLC0415 - `detent.task` needs none

        missing = [name for name in argument_names(templates) if name not in {*given}]
        if not missing:
            return templates
        defaults = {name: self._default_path(name) for name in missing}
        return [text for template in templates for text in filled(template, defaults)]

    def _default_path(self, name: str) -> Any:
        """The default of a parameter that declared inputs name and a call leaves out."""
        signature = self._known_signature()
        parameter = None if signature is None else signature.parameters.get(name)
        if signature is None or parameter is None or parameter.default is inspect.Parameter.empty:
            raise InvalidInput(
                f"inputs of task {self.__name__!r} names {{{name}}}, and the task is given no such argument",
                hint="" if signature is None else f"it is {self.__name__}{signature}; {{{{ and }}}} are literal braces",
            )
        default = parameter.default
        return default.__fspath__() if hasattr(default, "__fspath__") else default

    def __get__(self, instance: object, owner: type | None = None) -> Task[P, R]:
        if instance is None or self._static:
            return self
        raise InvalidInput(
            f"{self.__qualname__!r} is a method, and a task must be a function: it runs where this object is not",
            hint="make it a static method (@staticmethod above @detent.task), or a function at the top of the module",
        )

    def __repr__(self) -> str:
        return f"<task {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> str:
        # By name, as functions are pickled: a pool of processes may still be given what was decorated.
        return self.__qualname__

    def _changed(self, options: Options, after: tuple[Any, ...]) -> Task[P, R]:
        function = staticmethod(self.__wrapped__) if self._static else self.__wrapped__
        return Task(function, options, after=after)

    def _record(self, recording: Recording, run: dict[str, Any], extra: Mapping[str, Any] | None = None) -> Step:
        if self._reference is None:
            self._reference = refer(self.__wrapped__)
        options = self._options
        binding = {"python": self._reference.target, **run}
        if options.version is not None:
            binding["version"] = options.version
        step: dict[str, Any] = {"run": binding, **options.keys(), **(extra or {})}
        if "inputs" not in (extra or {}) and options.inputs is not None:
            places = (str(place + 1) for place in range(len(run.get("args", ()))))
            filled = self.inputs_for([*run.get("with", ()), *places, *step.get("map", ())])
            step["inputs"] = step["inputs"] if filled == [step["inputs"]] else filled
        if self._after:
            step["needs"] = recording.needs(self._after, f"{self.__name__}.after()")
        if "env" in step:
            step["env"] = self._value(recording, step["env"], "env=")
        return recording.add(options.name or self.__name__, self._reference, step, is_async=self._is_async)

    def _value(self, recording: Recording, given: Any, argument: str) -> Any:
        return recording.value(given, f"{self.__name__}({argument}...)")

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, by name wherever they may be: ``f(1)`` and ``f(x=1)`` are one step."""
        signature = self._known_signature()
        if signature is None:
            return args, kwargs
        if not kwargs and len(args) in self._plain_counts:
            return (), dict(zip(signature.parameters, args, strict=False))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise InvalidInput(
                f"{self.__name__}() is called wrongly: {exc}", hint=f"it is {self.__name__}{signature}"
            ) from exc
        if len(bound.args) == 0 or any(
            parameter.kind is inspect.Parameter.VAR_POSITIONAL and bound.arguments.get(name)
            for name, parameter in signature.parameters.items()
        ):
            return bound.args, bound.kwargs
        names = [name for name in signature.parameters if name in bound.arguments][: len(bound.args)]
        positional, keywords = [], {}
        for name, value in zip(names, bound.args, strict=True):
            if signature.parameters[name].kind in _BY_KEYWORD:
                keywords[name] = value
            else:
                positional.append(value)
        return tuple(positional), keywords | bound.kwargs

    def _takes(self, name: str) -> bool:
        """Whether the function takes an argument of a name."""
        signature = self._known_signature()
        parameters = {} if signature is None else signature.parameters
        return name in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())

    def _mapped_name(self, fixed: Mapping[str, Any]) -> str:
        signature = self._known_signature()
        shown = f"{self.__name__}.map()"
        if signature is None:
            raise _cannot_map(shown, "its parameters are not known")
        parameters = signature.parameters
        takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        unknown = [name for name in fixed if name not in parameters and not takes_any]
        if unknown:
            raise InvalidInput(
                f"{shown}: there is no parameter {unknown[0]!r}", hint=f"it is {self.__name__}{signature}"
            )
        for name, parameter in parameters.items():
            if name in fixed:
                continue
            if parameter.kind in _BY_KEYWORD:
                return name
            break
        raise _cannot_map(shown, "it has no parameter left that takes a value by name")

    def _elements(self, items: Iterable[Any]) -> Iterable[Any]:
        if not isinstance(items, list | tuple | range | Iterator):
            from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

            raise InvalidInput(
                f"{self.__name__}.map() takes a list or a step, not {a_or_an(type(items))}",
                hint="put the elements into a list, in the order that the results shall have",
            )
        elements = list(islice(items, MAPPED_MAX + 1))
        if len(elements) > MAPPED_MAX:
            raise InvalidInput(f"{self.__name__}.map() takes at most {MAPPED_MAX:,} elements", hint="map over chunks")
        return elements

    def _known_signature(self) -> inspect.Signature | None:
        if isinstance(self._signature, bool):
            try:
                self._signature = inspect.signature(self.__wrapped__)
            except (ValueError, TypeError):  # Some builtins have none that Python can tell.
                self._signature = None
            else:
                self._plain_counts = _plain_counts(self._signature)
        return self._signature


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(function: Callable[P, R] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """Make a function a task: ``@detent.task``, ``@detent.task(retries=3)`` or ``detent.task(sum)``.

    * ``name``: what its steps are called; otherwise the function's name
    * ``retries``: how often it is tried again after a failure, 0 to 10; ``retry_on``: after which categories of failure,
      otherwise those of its own code and of the system (X-164)
    * ``timeout``: limit of one attempt: seconds, ``"5m"``, ``"1h30m"`` or a timedelta; without it there is none (X-162)
    * ``cache``: True reuses an earlier result wherever it is asked for, False runs it every time. Without it, flows reuse it and
      a `Client` runs it each time it is submitted (X-190); ``version``: your own word for "the code is the same" (X-176)
    * ``inputs``: files or globs whose content decides about reuse; ``"{path}"`` stands for the argument ``path``, ``()`` says
      that no file counts; ``outputs``: files that it leaves behind (X-175)
    * ``env``, ``cwd``: variables and directory that it runs with; ``priority``: 1 to 10 or
      ``"low"``, ``"normal"``, ``"high"``: 10 goes first, 5 is normal
    * ``resources={"cpu": 2, "gpu": 1}``: what one attempt takes; it begins when so much of each is free. ``cpu`` counts
      worker processes; work takes one unless it asks for more. Other resources are declared under ``[resources]`` in the
      home's ``config.toml``, and are counted, not measured
    * ``pool="gpu"``, ``labels=["a100"]``: only a worker elsewhere of that pool, with those labels, takes it; see
      docs/how-to/workers-elsewhere.md
    * ``quota``, ``lease``, ``backoff``: names of policies that the home's ``config.toml`` defines under ``[quotas.NAME]``,
      ``[leases.NAME]`` and ``[backoffs.NAME]``: what its jobs may use over all attempts, how long a worker may be silent, and
      how long to wait before each retry
    * ``chunk``: how many elements of ``map`` share one job in a flow; without it, their durations decide, and 1 gives each its own
    * ``on_error="continue"``: its failure does not stop the run; ``skip_on_failure``: skip it once a step has failed

    Refuses what cannot be called by name in another process: classes, methods of objects, ``functools.partial``.
    """
    known = options_from(options, "task()")
    if function is None:
        return lambda decorated: Task(decorated, known)
    if options:
        raise InvalidInput(
            "task() takes a function or options, not both", hint="task(function).options(...), or @task(...) above it"
        )
    return Task(function, known)


def _plain_counts(signature: inspect.Signature) -> range:
    parameters = list(signature.parameters.values())
    if any(parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
        return range(0)
    needed = sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
    return range(max(1, needed), len(parameters) + 1)


def _check_function(function: Any) -> None:
    """Refuse what can never be a step, where it is decorated."""
    wrap = "write a function at the top of a module that does the same, and decorate that"
    if isinstance(function, Task):
        raise _no_task(f"{function!r} is a task already", "use it as it is; .options() changes what is said about it")
    if isinstance(function, type):
        raise _no_task(f"{function.__name__!r} is a class, and its instances are not JSON values", wrap)
    if isinstance(function, partial):
        raise _no_task("functools.partial has no name that another process could find", wrap)
    if isinstance(function, classmethod | property):
        raise _no_task(f"a {type(function).__name__} cannot be a task", "make it a static method or a plain function")
    if not callable(function):
        raise _no_task(f"{function!r:.80} cannot be called", "decorate a function")
    bound_to = getattr(function, "__self__", None)
    if bound_to is not None and not isinstance(bound_to, ModuleType):
        raise _no_task(
            f"{getattr(function, '__qualname__', function)!r} is a method of an object that other processes lack", wrap
        )
    inner = unwrapped(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise _no_task(
            f"{inner.__qualname__!r} is a generator, and its result would not be a JSON value", "return a list"
        )
    if not isinstance(getattr(function, "__name__", None), str):
        raise _no_task(f"{function!r:.80} has no name", wrap)


def _no_task(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, hint=hint)


def _cannot_map(shown: str, why: str) -> InvalidInput:
    return InvalidInput(f"{shown} is not possible: {why}", hint="write a function around it, as in def each(item): ...")


async def _gathered(results: Sequence[Any]) -> list[Any]:
    from asyncio import gather  # noqa: PLC0415 - only for an awaited call

    return list(await gather(*results))
