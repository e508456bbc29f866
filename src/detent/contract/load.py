"""The loader: bytes or a document in, a checked contract out, or every reason why not.

Reading, structure, names, dependencies and cycles follow one another here; each reports what it finds and leaves the
next one everything it could understand. Ids come last, because they follow from the whole. Nothing of the user's is
imported, opened or run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

from detent.canon import NotStrictJson, json_encode
from detent.contract.definition import LONG_KEYS, SHORT_KEYS, build_long, build_short, short_definition
from detent.contract.findings import ContractInvalid, Finding, Locate, Place, Report, Spot, invalid, locate
from detent.contract.identity import CORRELATION_LABEL, STEP_LABEL, id_maker
from detent.contract.map_run import check_declared, has_params
from detent.contract.model import CheckJob, Contract, Kind, Param, Written
from detent.contract.params import check_params
from detent.contract.schedule import Schedule, check_schedule
from detent.contract.shapes import BAD, check_keys, mapping, shell, unknown_key
from detent.contract.steps import (
    Draft,
    Names,
    check_result,
    name_steps,
    read_steps,
    refuse_outputs_of_sandbox,
    refuse_too_small,
    refuse_unenforced,
    report_cycles,
    resolve_needs,
)
from detent.contract.words import LONG_FORM_BYTES_MAX, shown
from detent.contract.yaml_reader import read
from detent.workflow.ordering import Edges
from detent.workflow.plain import Outline, PlainStep, plain_step

LONG: str = "workflow_coordination"
_ANY_ID = UUID(int=0)


def load(
    data: bytes, *, name: str = "contract", base: str | None = None, check_job: CheckJob | None = None
) -> Contract:
    """The contract in the bytes of a YAML or JSON file. ``name`` is what findings call the file.

    ``check_job`` looks at ``job:`` payloads; without it they are taken as they are.
    Raises ``ContractInvalid`` with everything that is wrong, each with its line.
    """
    tree = read(data, name=name)
    return _Loader(tree.value, name, base, partial(locate, tree.text), tree.begins, check_job).contract()


def from_document(
    document: Mapping[str, Any], *, name: str = "contract", base: str | None = None, recorded: bool = False
) -> Contract:
    """The contract in a document of plain JSON data, in either form. Raises ``ContractInvalid``; findings have no lines.

    One that was ``recorded`` may say what is refused today: its runs are still read, and taken up as they were begun.
    """
    try:
        json_encode(document, name="contract", bytes_max=LONG_FORM_BYTES_MAX)
    except NotStrictJson as exc:
        path = str(exc.details.get("path", "")).removeprefix("contract").removeprefix(".")
        raise ContractInvalid(
            [
                Finding(
                    name, 0, 0, str(exc), exc.hint or "use only dict, list, str, int, float, bool and None", path=path
                )
            ]
        ) from exc
    loader = _Loader(_copied(document), name, base, None, {})
    loader.recorded = recorded
    return loader.contract()


def _copied(value: Any) -> Any:
    """A copy of JSON data of bounded depth; `copy.deepcopy` would spend as long on it as all the rest of loading."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


class _Loader:
    """One document on its way to a contract."""

    def __init__(
        self,
        document: Any,
        name: str,
        base: str | None,
        locate_faults: Locate | None,
        begins: Mapping[int, Place],
        check_job: CheckJob | None = None,
    ) -> None:
        self.document = document
        self.name = name
        self.base = base
        self.locate = locate_faults
        self.begins = begins
        self.check_job = check_job
        self.report = Report()
        self.recorded = False
        self.short = not (type(document) is dict and LONG in document)
        self.params: dict[str, Param] = {}
        self.definition_fields: Mapping[str, Any] = {}
        self.schedule: Schedule | None = None
        self.schedule_place: Place | None = None
        self.shell: tuple[str, ...] = ()
        """Of the steps that run a command and choose no shell of their own."""
        self.result: Any = None
        self.result_at = Spot(self.report)

    def contract(self) -> Contract:
        top = Spot(self.report)
        if type(self.document) is not dict:
            top.fault(f"a contract is a mapping, not {shown(self.document)}", "begin with `name:` and `steps:`")
            raise self._invalid()
        definition, raw_steps, steps_at = self._short(top) if self.short else self._long(top)
        drafts = read_steps(raw_steps, steps_at, short=self.short)
        self._choose_shell(drafts)
        names = name_steps(drafts)
        edges = resolve_needs(drafts, names, self.params, self.report)
        for draft in drafts:
            check_declared(draft.binding, draft.spot, self.params)
            if not self.recorded:
                refuse_unenforced(draft)
                refuse_too_small(draft)
                refuse_outputs_of_sandbox(draft)
            self._check_job(draft)
        check_result(self.result, self.result_at, names, self.params)
        report_cycles(drafts, names, edges)
        steps = self._steps(drafts, edges)
        if self.report.count or definition is None:
            raise self._invalid()
        return self._assembled(definition, steps, drafts, names, raw_steps)

    def _short(self, top: Spot) -> tuple[Outline | None, Any, Spot]:
        checked = check_keys(self.document, SHORT_KEYS, top, "the contract")
        if "name" not in self.document and "steps" not in self.document:
            top.fault("this is not a contract: it has neither name and steps nor workflow_coordination", _BEGIN)
        else:
            for missing in ("name", "steps"):
                if missing not in self.document:
                    top.fault(f"the contract has no {missing}", _BEGIN)
        if "params" in checked:
            self.params = check_params(checked["params"], top.at("params"))
        if "schedule" in checked:
            self.schedule = checked["schedule"]
            self.schedule_place = self.begins.get(id(self.document["schedule"]))
        self.shell = checked.get("shell", ())
        self.result, self.result_at = checked.get("result"), top.at("result")
        self.definition_fields = short_definition(checked)
        definition = build_short(self.definition_fields, top)
        return definition, checked.get("steps", []), top.at("steps")

    def _long(self, top: Spot) -> tuple[Outline | None, Any, Spot]:
        for key in self.document:
            if key != LONG:
                top.at(key).fault(f"unknown key {shown(key)} beside {LONG}", f"move it into {LONG}", at_key=True)
        inside = top.at(LONG)
        coordination = mapping(self.document[LONG], inside)
        if coordination is BAD:
            return None, [], inside
        for key in coordination:
            if key not in LONG_KEYS:
                unknown_key(key, dict.fromkeys(LONG_KEYS), inside, LONG)
        if "params" in coordination:
            self.params = check_params(coordination["params"], inside.at("params"))
        if "schedule" in coordination:
            self.schedule = check_schedule(coordination["schedule"], inside.at("schedule"))
            self.schedule_place = self.begins.get(id(coordination["schedule"]))
        if "shell" in coordination and (chosen := shell(coordination["shell"], inside.at("shell"))) is not BAD:
            self.shell = chosen
        self.result, self.result_at = coordination.get("result"), inside.at("result")
        if "workflow_definition" not in coordination:
            inside.fault(f"{LONG} has no workflow_definition", "see docs/contract-file.md for the long form")
            return None, coordination.get("steps", []), inside.at("steps")
        self.definition_fields = coordination["workflow_definition"]
        definition = build_long(self.definition_fields, inside.at("workflow_definition"))
        return definition, coordination.get("steps", []), inside.at("steps")

    def _check_job(self, draft: Draft) -> None:
        if self.check_job is None or draft.binding is None or draft.binding.kind is not Kind.JOB:
            return
        defaults = {name: param.default for name, param in self.params.items() if not param.required}
        for path, message, hint in self.check_job(draft.binding.target, defaults):
            draft.spot.at("run", "job", *path).fault(message, hint)

    def _choose_shell(self, drafts: Sequence[Draft]) -> None:
        if not self.shell:
            return
        for draft in drafts:
            if draft.binding is not None and draft.binding.kind is Kind.SHELL and not draft.binding.shell:
                draft.binding = replace(draft.binding, shell=self.shell)

    def _steps(self, drafts: Sequence[Draft], edges: Edges) -> list[PlainStep]:
        """The steps, with made ids if nothing is wrong so far and with any others if only faults are still wanted."""
        fields_of = [dict(draft.fields) for draft in drafts]
        if not self.report.count:
            self._fill_ids(drafts, edges, fields_of)
        steps = []
        for draft, fields in zip(drafts, fields_of, strict=True):
            if not fields:
                continue
            fields.setdefault("step_id", _ANY_ID)
            fields.setdefault("correlation_id", _ANY_ID)
            step = plain_step(fields) or _modelled(fields, draft)
            if step is not None:
                steps.append(step)
        return steps

    def _fill_ids(self, drafts: Sequence[Draft], edges: Edges, fields_of: list[dict[str, Any]]) -> None:
        make = id_maker(self.definition_fields, self.params, drafts, edges)
        for index, fields in enumerate(fields_of):
            if "step_id" not in fields:
                fields["step_id"] = make(STEP_LABEL, index)
            if "correlation_id" not in fields:
                fields["correlation_id"] = make(CORRELATION_LABEL, index)
        ids = [fields["step_id"] for fields in fields_of]
        for draft, needed, fields in zip(drafts, edges, fields_of, strict=True):
            if needed or draft.needs is not None:
                fields["depends_on"] = [ids[position] for position in needed]

    def _assembled(
        self,
        definition: Outline,
        steps: list[PlainStep],
        drafts: Sequence[Draft],
        names: Names,
        raw_steps: Sequence[Any],
    ) -> Contract:
        ids = [step.step_id for step in steps]
        return Contract(
            definition,
            tuple(steps),
            MappingProxyType(
                {
                    step_id: draft.binding
                    for step_id, draft in zip(ids, drafts, strict=True)
                    if draft.binding is not None
                }
            ),
            MappingProxyType({step_id: key or str(step_id) for step_id, key in zip(ids, names.keys, strict=True)}),
            MappingProxyType(self.params),
            self.result,
            self.schedule,
            name=self.name,
            base=self.base,
            places=MappingProxyType(
                {
                    step_id: self.begins[id(raw)]
                    for step_id, raw in zip(ids, raw_steps, strict=True)
                    if id(raw) in self.begins
                }
            ),
            schedule_place=self.schedule_place,
            written=self._written(ids, drafts),
        )

    def _written(self, ids: Sequence[UUID], drafts: Sequence[Draft]) -> Written | None:
        if not any(
            draft.binding is not None and (has_params(draft.binding) or draft.binding.policies) for draft in drafts
        ):
            return None
        paths = {one: draft.spot.path for one, draft in zip(ids, drafts, strict=True)}
        return Written(paths, self.locate, self.check_job)

    def _invalid(self) -> ContractInvalid:
        return invalid(self.report, self.name, self.locate)


def _modelled(fields: Mapping[str, Any], draft: Draft) -> PlainStep | None:
    """A step that its model checks, because it says something unusual or wrong."""
    from detent.contract.model_fields import build, plain_of  # noqa: PLC0415 - most contracts need no models
    from detent.workflow.models import ModelWorkflowStep  # noqa: PLC0415

    step = build(ModelWorkflowStep, fields, draft.spot, draft.place)
    return None if step is None else plain_of(step)


_BEGIN = "begin with `name:` and `steps:`, or with `workflow_coordination:`"
