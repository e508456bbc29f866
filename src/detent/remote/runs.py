"""A run that a server drives, watched from here: where it stands, and the end of it.

The run does not depend on the command that watches it: close the laptop, and it goes on. Which run a command line stands for is written down in the user's
state directory, so that the same line finds it again while it has not ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from detent.canon import sha256
from detent.errors import DetentError, InvalidInput
from detent.remote.http import ANSWER_SECONDS, Http
from detent.remote.problems import AnswerInvalid
from detent.runs.record.outcome import Artifact, StepFailure
from detent.runs.record.view import RunView, StepView
from detent.store.files import replace_no_follow
from detent.words.states import DONE, RUNNING

WATCH_SECONDS: Final = 1
PATIENCE_SECONDS: Final = 300.0
"""For how long a server that cannot be reached is waited for while a run is watched: it may be restarting."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left behind at its server."""

    gives_result: bool = False
    result: Any = None
    result_left_out: bool = False
    artifacts: tuple[Artifact, ...] = ()
    """By name: their paths are those of the server."""
    failures: tuple[StepFailure, ...] = ()


class RemoteRun:
    """One run at a server. `watch` follows it to its end; everything else may be called from other threads."""

    def __init__(self, http: Http, run_id: str, *, resumed: bool = False) -> None:
        self._http, self.run_id, self._resumed = http, run_id, resumed
        self._left = False
        now_ms = int(time.time() * 1000)
        self._view = RunView(run_id, run_id, RUNNING, (), now_ms, now_ms, None, http.address.url, resumed=resumed)

    def view(self) -> RunView:
        """The run as it was last seen."""
        return self._view

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """End it as cancelled."""
        try:
            self._http.post(f"/v1/runs/{self.run_id}/cancel", {"reason": reason}, patience=PATIENCE_SECONDS)
        except DetentError as exc:
            if exc.code != "CONFLICT":  # It has ended meanwhile.
                raise

    def stop(self) -> None:
        """Look away; the run goes on."""
        self._left = True

    def look(self, wait: int = 0) -> RunView:
        """The run as it stands; ``wait``: when it has ended, or after so many seconds. Outlasts a restart of the server."""
        detail = self._http.get(
            f"/v1/runs/{self.run_id}", {"wait": wait}, seconds=wait + ANSWER_SECONDS, patience=PATIENCE_SECONDS
        )
        self._view = self._seen(detail)
        return self._view

    def watch(self) -> RunView:
        """Follow the run until it has ended, or until it is left alone: then it is `running` still."""
        while True:
            seen = self.look(WATCH_SECONDS)
            if seen.ended_ms is not None or self._left:
                return seen

    def outcome(self) -> Outcome:
        """What it left behind."""
        try:
            return _outcome(self._http.get(f"/v1/runs/{self.run_id}/outcome", patience=PATIENCE_SECONDS))
        except InvalidInput as exc:
            if exc.code != "CONTENT_GONE":
                raise
            return Outcome()

    def _seen(self, detail: Mapping[str, Any]) -> RunView:
        steps: list[StepView] = []
        cursor: str | None = None
        while True:
            try:
                page = self._http.get(
                    f"/v1/runs/{self.run_id}/steps", {"limit": 200, "cursor": cursor}, patience=PATIENCE_SECONDS
                )
            except InvalidInput as exc:
                if exc.code != "CONTENT_GONE":
                    raise
                break
            steps += [_step(one) for one in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        return RunView(
            self.run_id,
            str(detail["name"]),
            str(detail["status"]),
            tuple(steps),
            _ms(detail["started_at"]),
            int(time.time() * 1000),
            None,
            self._http.address.url,
            ended_ms=None if detail["ended_at"] is None else _ms(detail["ended_at"]),
            resumed=self._resumed,
            note=detail["message"] or "",
        )


def _ms(written: Any) -> int:
    """The milliseconds since 1970 of a moment as the server writes it."""
    try:
        return (datetime.fromisoformat(written) - _EPOCH) // timedelta(milliseconds=1)
    except (TypeError, ValueError):
        raise AnswerInvalid(f"{written!r:.80} is not a moment", hint="is the server of another version?") from None


def _outcome(sent: Mapping[str, Any]) -> Outcome:
    return Outcome(
        gives_result=sent["gives_result"],
        result=sent["result"],
        result_left_out=sent["result_left_out"],
        artifacts=tuple(
            Artifact(one["step"], one["name"], one["name"], one["size_bytes"], one["digest"])
            for one in sent["artifacts"]
        ),
        failures=tuple(
            StepFailure(**{name: one[name] for name in StepFailure.__dataclass_fields__}) for one in sent["failures"]
        ),
    )


def _step(sent: Mapping[str, Any]) -> StepView:
    return StepView(
        key=sent["step"],
        name=sent["name"],
        state=sent["state"],
        total=_total(sent),
        done=sent["done"],
        cached=sent["reused"],
        running=sent["running"],
        failed=sent["failed"],
        retries=sent["retries"],
        started_ms=sent["started_ms"],
        ended_ms=sent["ended_ms"],
        ran_ms=sent["ran_ms"],
        message=sent["message"] or "",
    )


def _total(sent: Mapping[str, Any]) -> int | None:
    """How many jobs a step has; as for a run on this machine, one that never began has none."""
    if sent["jobs"] or sent["state"] in DONE:
        return None if sent["total"] is None else int(sent["total"])
    return None if sent["mapped"] else 0


def start_run(http: Http, asked: Mapping[str, Any], kept: Path, *, new: bool) -> RemoteRun:
    """Start a run, or take up the one that the same request has open; ``kept`` is the directory of what is written down."""
    note = kept / f"{sha256(json.dumps([http.address.url, asked], sort_keys=True).encode()).hex()}.run"
    known = None if new else _known(http, note)
    if known is not None:
        return RemoteRun(http, known, resumed=True)
    run_id = str(http.post("/v1/runs", asked)["run_id"])
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_no_follow(note, f"{run_id}\n".encode())
    return RemoteRun(http, run_id)


def _known(http: Http, note: Path) -> str | None:
    """The open run that was written down; None where there is none."""
    try:
        run_id = note.read_text(encoding="ascii").strip()
        detail = http.get(f"/v1/runs/{run_id}")
    except (OSError, ValueError):
        return None
    except InvalidInput as exc:
        if exc.code != "UNKNOWN_RUN":
            raise
        return None
    return run_id if detail["ended_at"] is None else None
