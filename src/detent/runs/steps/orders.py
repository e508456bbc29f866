"""An element of a step on its way to becoming a job: its work key, its order, its submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.canon import digest_text, parse_digest
from detent.canon.strict_json import JsonValue
from detent.contract import map_words
from detent.contract.model import Binding, Kind
from detent.contract.step_limits import memory_limit_of, retries_of, wall_limit_of
from detent.jobs.values import restored
from detent.jobs.work import WorkOrder, WorkReport
from detent.owner.backend import Backend, Inline, Retries, Submission
from detent.reuse.ingredients import default_shell
from detent.reuse.path_arguments import expanded, input_paths
from detent.reuse.work_keys import Wanted, WorkKey, WorkKeys, limits_of
from detent.runs.record.inputs import RunInputs
from detent.runs.record.step_run import Binder, Bound, Element, StepRun


def wanted_of(step: StepRun, bound: Bound, base: str | None, load: Callable[[str], JsonValue]) -> Wanted:
    """The work of one element: what its step says, with the arguments put together.

    ``load`` gives the stored value of a result by its digest, for inputs that name an argument which is one.
    """
    binding = step.binding
    payload = bound.target if binding.kind is Kind.JOB else None
    return Wanted(
        kind=binding.kind.value,
        target=bound.target,
        base=base,
        arguments=bound.arguments,
        keywords=bound.keywords,
        env=bound.env,
        entrypoint=binding.entrypoint,
        cwd=binding.cwd,
        version=binding.version,
        cache=binding.cache,
        inputs=_reads(binding, bound, load),
        outputs=_leaves(binding, bound),
        shell=(binding.shell or default_shell()) if binding.kind is Kind.SHELL else (),
        limits=limits_of(
            wall_limit_of(step.step, binding, payload)[0],
            memory_limit_of(step.step, payload)[0],
            retries_for(step),
            binding.resources,
            binding.policies,
        ),
    )


def retries_for(step: StepRun) -> Retries:
    """How often a step is tried again, and after what."""
    retries = retries_of(step.step, step.binding)
    return Retries() if retries is None else Retries(*retries)


def _reads(binding: Binding, bound: Bound, load: Callable[[str], JsonValue]) -> tuple[str, ...] | None:
    """Paths or globs whose content decides about reuse: the declared ones, and those that a map goes through."""
    if binding.kind is Kind.MAP:
        return (*(binding.inputs or ()), *map_words.reads(bound.target, bound.keywords.get("items")))
    if not binding.inputs:
        return binding.inputs
    given = bound.env if binding.kind is Kind.SHELL else bound.keywords
    return input_paths(binding.inputs, bound.arguments, given, load)


def _leaves(binding: Binding, bound: Bound) -> Mapping[str, str]:
    """Files or globs that are left behind: the declared ones, or the file that a map fills.

    The home directory in a destination is the user's of this process, as where it is opened.
    """
    if binding.kind is not Kind.MAP:
        return binding.outputs
    return {name: expanded(path) for name, path in map_words.leaves(bound.target).items()}


class Orders:
    """Makes orders for one run. It knows the values of the run's results, and puts them where steps refer to them."""

    def __init__(
        self,
        backend: Backend,
        inputs: RunInputs,
        run_id: str,
        work_keys: WorkKeys,
        steps: list[StepRun],
        salt: str | None,
    ) -> None:
        self._backend = backend
        self._inputs = inputs
        self._run_id = run_id
        self._work_keys = work_keys
        self._salt = salt
        self._binder = Binder(inputs.params, {step.key: step for step in steps})
        self._value_digests: dict[str, bytes] = {}
        """What the values of this run's results are, by the digests of their reports."""

    def learn(self, element: Element, report: WorkReport | None) -> None:
        """Note what the value of an element is, for those that are given it."""
        if element.digest is not None and report is not None and report.value_digest is not None:
            self._value_digests[digest_text(element.digest)] = report.value_digest
            element.left_files = bool(report.files)

    def items(self, step: StepRun) -> list[JsonValue] | None:
        """What a mapped step goes through; None when it is to go through something that is no list."""
        return self._binder.items(step, self._load)

    def result(self, file: Callable[[dict[str, Any]], Any]) -> Any:
        """What the whole run gives back, as the contract says; ``file`` makes of a file's mapping what files are."""
        value = self._binder.stored(self._inputs.contract.result)
        return restored(value, self._value, file)

    def work_key(self, element: Element) -> WorkKey:
        """What an element's work is made of."""
        bound, base = self._binder.bind(element), self._inputs.contract.base
        wanted = wanted_of(element.step, bound, base, self._value)
        return self._work_keys.of(wanted, self._value_digests.__getitem__, salt=self._salt, load=self._value)

    def submissions(self, chosen: Sequence[tuple[Element, WorkKey]]) -> list[Submission]:
        """The elements as jobs, in their order."""
        return [self.submission(element, work_key) for element, work_key in chosen]

    def submission(self, element: Element, work_key: WorkKey) -> Submission:
        """The element as a job."""
        step, wanted = element.step, work_key.wanted
        payload = wanted.target if wanted.kind == "job" else None
        wall_ms, wall_by = wall_limit_of(step.step, step.binding, payload)
        memory_mb, memory_by = memory_limit_of(step.step, payload)
        order = WorkOrder(
            kind=wanted.kind,
            target=wanted.target,
            label=self.label(step),
            arguments=wanted.arguments,
            keywords=wanted.keywords,
            entrypoint=wanted.entrypoint,
            base=wanted.base,
            cwd=wanted.cwd,
            env=wanted.env,
            outputs=dict(wanted.outputs),
            wall_ms=wall_ms,
            wall_by=wall_by,
            memory_mb=memory_mb,
            memory_by=memory_by,
            run_id=self._run_id,
            step=step.key,
            index=element.index,
            ingredients=work_key.ingredients,
            resources=step.binding.resources,
            policies=step.binding.policies,
            again=element.again,
            shell=wanted.shell,
        )
        return self._backend.submission(
            order,
            job_id=element.job_id,
            job_kind="action",
            priority=step.priority,
            retries=retries_for(step),
            key=work_key.key,
            run_id=self._run_id,
        )

    def about_reuse(self, element: Element, work_key: WorkKey) -> tuple[bytes, Inline]:
        """What a record of a reuse names: the ingredients that were equal."""
        return self._backend.sealed_trusted(
            {"label": self.label(element.step), "ingredients": dict(work_key.ingredients), "index": element.index}
        )

    def label(self, step: StepRun) -> str:
        """What the step's work is called across runs."""
        return f"{self._inputs.name}/{step.key}"

    def _value(self, named: str) -> JsonValue:
        return self._load(parse_digest(named))

    def _load(self, digest: bytes) -> JsonValue:
        report = self._backend.report(digest)
        return None if report is None else self._backend.value(report)
