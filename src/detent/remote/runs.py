"""A run that a server drives, watched from here: where it stands, and the end of it.

The server needs nobody to watch: closing the laptop leaves the run as it is. Which run a command line stands for is written down in the user's
state directory, so that the same line finds it again while it has not ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.canon import sha256
from detent.errors import DetentError, InvalidInput
from detent.remote.http import ANSWER_SECONDS, Http
from detent.runs.record.view import RunView, StepView
from detent.store.files import replace_no_follow
from detent.words.states import RUNNING

WATCH_SECONDS: Final = 1
PATIENCE_SECONDS: Final = 300.0
"""For how long a server that cannot be reached is waited for while a run is watched: it may be restarting."""


class RemoteRun:
    """One run at a server. `watch` follows it to its end; everything else may be called from other threads."""

    def __init__(self, http: Http, run_id: str, *, resumed: bool = False) -> None:
        self._http, self.run_id, self._resumed = http, run_id, resumed
        self._left = False
        self._view = RunView(run_id, run_id, RUNNING, (), 0, 0, 0, "", resumed=resumed)

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

    def watch(self) -> str:
        """Follow the run until it has ended, also while the server restarts; its status, `running` if it was left alone."""
        while True:
            query = {"wait": WATCH_SECONDS if self._view.started_ms else 0}
            path = f"/v1/runs/{self.run_id}"
            seconds = WATCH_SECONDS + ANSWER_SECONDS
            detail = self._http.get(path, query, seconds=seconds, patience=PATIENCE_SECONDS)
            self._view = self._seen(detail)
            if detail["ended_at"] is not None or self._left:
                return str(detail["status"])

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
        now_ms = int(time.time() * 1000)
        started = min((step.started_ms for step in steps if step.started_ms is not None), default=now_ms)
        ended = None if detail["ended_at"] is None else max((step.ended_ms or 0 for step in steps), default=now_ms)
        return RunView(
            self.run_id,
            str(detail["name"]),
            str(detail["status"]),
            tuple(steps),
            started,
            now_ms,
            0,
            "",
            ended_ms=ended or None,
            resumed=self._resumed,
        )


def _step(sent: Mapping[str, Any]) -> StepView:
    return StepView(
        key=sent["step"],
        name=sent["name"],
        state=sent["state"],
        total=sent["total"],
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
