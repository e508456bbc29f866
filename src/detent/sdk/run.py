"""`detent.run`: a contract, or a flow with its arguments, to finished work."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.errors import DetentError, InvalidInput
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.contract.model import Contract
    from detent.runs.handle import RunResult
    from detent.runs.record.view import StepView
    from detent.runs.runtime import Runtime

REASONS_MAX: Final = 3
"""Failed steps that an exception names."""


class RunFailed(DetentError):
    """A run did not succeed; the message says which steps failed and why."""

    code = "RUN_FAILED"


class Run:
    """A run that has ended, or was left as it stood."""

    def __init__(self, result: RunResult, home: Path | str, places: Sequence[str] = ()) -> None:
        self._result = result
        self._places = places
        """Where in the user's own code the first steps failed."""
        self.home = home
        """The home whose ledger holds it; the URL of the server, for one behind a server."""

    @property
    def run_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._result.run_id

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self._result.name

    @property
    def status(self) -> str:
        """``succeeded``, ``failed``, ``cancelled``, or ``stopped`` for one that can be resumed."""
        return word_of(self._result.status)

    @property
    def ok(self) -> bool:
        """Whether everything succeeded."""
        return self._result.ok

    @property
    def steps(self) -> tuple[StepView, ...]:
        """Every step with its state and result."""
        return self._result.view.steps

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the flow although it runs."""
        return self._result.view.warnings

    def result(self) -> Any:
        """What the flow returned, or what the contract's ``result`` names. Raises `RunFailed` if it did not succeed."""
        if not self.ok:
            raise self._failure()
        return self._result.value

    def __repr__(self) -> str:
        return f"<run {self.run_id}: {self.status}>"

    def _failure(self) -> RunFailed:
        reasons = [f"{failed.step}: {failed.message}" for failed in self._result.failed] or [self._result.message]
        more = "" if len(reasons) <= REASONS_MAX else f" (and {len(reasons) - REASONS_MAX} more)"
        first = self._result.failed[0].job_id if self._result.failed else self.run_id
        failure = RunFailed(
            f"run {self.run_id} {self.status}: {'; '.join(reasons[:REASONS_MAX])}{more}",
            hint=f"`detent show {self.run_id}` and `detent explain {first}` tell more",
            details={
                "run_id": self.run_id,
                "status": self.status,
                "failed": [f.job_id for f in self._result.failed],
                "places": list(self._places),
            },
        )
        # Before the hint, as a traceback would have it.
        failure.__notes__[:0] = [f"at {place}" for place in self._places]
        return failure


def run(  # noqa: PLR0913 - how a run is to go, each by its name
    contract_or_path: Contract | str | Path,
    params: Mapping[str, Any] | None = None,
    *,
    home: str | Path | None = None,
    workers: int | None = None,
    force: bool = False,
    new: bool = False,
    max_parallel: int | None = None,
    salt: str | None = None,
) -> Run:
    """Run a contract to its end and give the run.

    ``contract_or_path`` is a contract file or what `Flow.contract` gives. ``home`` names the directory of the ledger;
    otherwise the nearest ``.detent`` upwards, or a new one here. The same contract with the same parameters and an unfinished
    run goes on where that run stopped, unless ``new``; ``force`` runs every step again.
    """
    from detent.runs.ahead import host_ahead  # noqa: PLC0415 - `import detent` stays cheap
    from detent.sdk.user_code import refuse_while_loading  # noqa: PLC0415

    refuse_while_loading("starts a run")
    chosen = None if home is None else Path(home)
    host = host_ahead(chosen, reuses=not force)  # Before all else is loaded.
    from detent.contract.params import bind  # noqa: PLC0415
    from detent.reuse.work_keys import Options  # noqa: PLC0415
    from detent.runs.handle import RunHandle  # noqa: PLC0415
    from detent.runs.record.inputs import RunInputs  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415

    contract = _contract(contract_or_path)
    bound = bind(contract, {} if params is None else dict(params))
    options = Options(force=force, salt=salt, max_parallel=max_parallel)
    where = home_at(chosen)
    with Runtime(where, workers=workers, late=True, host=host) as work:
        handle = RunHandle(work, RunInputs(contract, bound), options=options, new=new, file=file_maker(where.path))
        ended = run_of(work, handle.run())
    for text in ended.warnings:
        warnings.warn(text, stacklevel=2)
    return ended


def run_of(work: Runtime, ended: RunResult) -> Run:
    """A run that has ended, as users see it."""
    return Run(ended, work.home.path, _places(work, ended))


def _places(work: Runtime, ended: RunResult) -> list[str]:
    """The lines of the user's own in which the first steps failed."""
    if not ended.failed:
        return []
    from detent.owner.content import Content  # noqa: PLC0415 - for failures alone
    from detent.runs.record.outcome import failures_of  # noqa: PLC0415

    told = failures_of(
        work.backend.reader, Content(work.backend.reader, work.backend.files), ended.failed[:REASONS_MAX]
    )
    return [failure.where for failure in told if failure.where is not None]


def file_maker(home: Path) -> Any:
    """What makes a `detent.File` of the mapping that stands for one in a stored value."""
    from detent.executor.file import File  # noqa: PLC0415
    from detent.owner.content_place import content_place  # noqa: PLC0415

    content = content_place(home)
    return lambda mapping: File.kept(mapping, str(content))


def _contract(given: Contract | str | Path) -> Contract:
    from detent.contract import Contract, load  # noqa: PLC0415
    from detent.contract.words import BYTES_MAX  # noqa: PLC0415
    from detent.runs.record.inputs import check_job  # noqa: PLC0415

    if isinstance(given, Contract):
        return given
    if callable(getattr(given, "contract", None)):
        name = getattr(given, "name", "FLOW")
        raise InvalidInput(
            f"{given!r} is a flow, which needs its arguments", hint=f"write {name}.run(...) with its arguments"
        )
    if not isinstance(given, str | Path):
        from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

        raise InvalidInput(
            f"{a_or_an(type(given))} cannot be run", hint="pass the path of a contract file, or flow.contract(...)"
        )
    path = Path(given)
    try:
        with path.open("rb") as stream:
            data = stream.read(BYTES_MAX + 1)
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be read: {exc.strerror or exc}", hint="check the path") from exc
    return load(data, name=str(given), base=str(path.absolute().parent), check_job=check_job)
