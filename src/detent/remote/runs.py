"""A run that a server drives, watched from here: where it stands, and the end of it.

The run does not depend on the command that watches it: close the laptop, and it goes on. Which run a command line stands for is written down in the user's
state directory, so that the same line finds it again while it has not ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from detent.canon import sha256
from detent.errors import DetentError, InvalidInput
from detent.remote.events import Events
from detent.remote.http import ANSWER_SECONDS, Http, Pauses
from detent.remote.problems import AnswerInvalid
from detent.runs.record.outcome import Artifact, StepFailure
from detent.runs.record.view import RunView, StepView
from detent.store.files import replace_no_follow
from detent.words.states import DONE, RUNNING

T = TypeVar("T")

LOOK_SECONDS: Final = 0.2
LOOK_SECONDS_MAX: Final = 2.0
"""Between two looks at a run, at least; a look that waited for a server that was away does not count for more."""
SETTLE_SECONDS: Final = 1.0
"""How long after news a run is looked at once more; and how often, where no news come."""
IDLE_SECONDS: Final = 15.0
"""How long a run is not looked at to which nothing happens."""
STEPS_READ_MAX: Final = 500
"""Runs with more steps are read by their changes alone."""
WAIT_SECONDS: Final = 30
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
    """One run at a server. `watch` and `wait` follow it to its end; everything else may be called from other threads."""

    def __init__(self, http: Http, run_id: str, *, resumed: bool = False) -> None:
        self.http, self.run_id, self._resumed = http, run_id, resumed
        self._steps: dict[str, StepView] = {}
        self._position: str | None = None
        """Where the ledger stood when the steps were read."""
        now_ms = int(time.time() * 1000)
        self._view = RunView(run_id, run_id, RUNNING, (), now_ms, now_ms, None, http.address.url, resumed=resumed)

    def view(self) -> RunView:
        """The run as it was last seen; of one that goes on, at this moment."""
        seen = self._view
        return seen if seen.ended_ms is not None else replace(seen, now_ms=int(time.time() * 1000))

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """End it as cancelled."""
        try:
            self.http.post(f"/v1/runs/{self.run_id}/cancel", {"reason": reason}, patience=PATIENCE_SECONDS)
        except DetentError as exc:
            if exc.code != "CONFLICT":  # It has ended meanwhile.
                raise

    def look(self, wait: int = 0, *, changes: bool = False) -> RunView:
        """The run as it stands; ``wait``: when it has ended, or after so many seconds. Outlasts a restart of the server.

        ``changes``: read only the steps that have changed since the last look.
        """
        detail = self._detail(wait)
        self._read_steps(None if detail["ended_at"] is not None or not changes else self._position)
        self._view = self._seen(detail)
        return self._view

    def watch(self) -> RunView:
        """Follow the run with all its steps until it has ended.

        It is looked at when something happens to it, and once more a moment later, since the ledger does not have everything that a step tells
        about itself. Where events do not come through, it is looked at every second.
        """
        changes = settled = False
        with Events(self.http, [f"run:{self.run_id}"]) as events:
            while True:
                began = time.monotonic()
                seen = self.look(changes=changes)
                if seen.ended_ms is not None:
                    return seen
                # A look takes a share of the server's time: a large run, whose looks take longer, is looked at less often.
                time.sleep(min(LOOK_SECONDS_MAX, max(LOOK_SECONDS, 2 * (time.monotonic() - began))))
                happened = events.wait(IDLE_SECONDS if settled and events.is_live else SETTLE_SECONDS)
                changes, settled = happened or len(self._steps) > STEPS_READ_MAX, not happened

    def wait(self) -> RunView:
        """Wait for its end, without a look at its steps meanwhile."""
        while self._detail(WAIT_SECONDS)["ended_at"] is None:
            pass
        return self.look()

    def outcome(self) -> Outcome:
        """What it left behind."""
        try:
            return _outcome(self.http.get(f"/v1/runs/{self.run_id}/outcome", patience=PATIENCE_SECONDS))
        except InvalidInput as exc:
            if exc.code != "CONTENT_GONE":
                raise
            return Outcome()

    def _detail(self, wait: int) -> dict[str, Any]:
        path, query = f"/v1/runs/{self.run_id}", {"wait": wait}
        detail: dict[str, Any] = self._outlast(
            lambda: self.http.get(path, query, seconds=wait + ANSWER_SECONDS, patience=0)
        )
        return detail

    def _outlast(self, ask: Callable[[], T]) -> T:
        """Ask until the server answers, as long as patience lasts; what it waits for is told in the view."""
        until, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
        while True:
            try:
                return ask()
            except DetentError as exc:
                pause = pauses.next()
                if not exc.retryable or time.monotonic() + pause > until:
                    raise
            self._view = replace(self._view, note=f"no answer from {self.http.address.url}; waiting for it")
            time.sleep(pause)

    def _read_steps(self, since: str | None) -> None:
        """Read the steps, or those that have changed behind a position of the ledger."""
        path, cursor = f"/v1/runs/{self.run_id}/steps", None
        while True:
            query = {"limit": 500, "cursor": cursor, "changed_since": since}
            try:
                page = self._outlast(lambda asked=query: self.http.get(path, asked, patience=0))  # type: ignore[misc]
            except InvalidInput as exc:
                if exc.code != "CONTENT_GONE":
                    raise
                return
            self._steps |= {str(one["step"]): _step(one) for one in page["items"]}
            cursor = page["next"]
            if cursor is None:
                self._position = str(page["position"])
                return

    def _seen(self, detail: Mapping[str, Any]) -> RunView:
        return RunView(
            self.run_id,
            str(detail["name"]),
            str(detail["status"]),
            tuple(self._steps.values()),
            _ms(detail["started_at"]),
            int(time.time() * 1000),
            None,
            self.http.address.url,
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
    """Start a run, or take up the one that the same request has open; ``kept`` is the directory of what is written down.

    The idempotency key is written down before the request is sent: a command that never saw its answer finds the run that it started.
    """
    note = kept / f"{sha256(json.dumps([http.address.url, asked], sort_keys=True).encode()).hex()}.run"
    word = "" if new else _written(note)
    if word and not word.startswith(_KEY) and _is_open(http, word):
        return RemoteRun(http, word, resumed=True)
    key = word.removeprefix(_KEY) if word.startswith(_KEY) else uuid4().hex
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_no_follow(note, f"{_KEY}{key}\n".encode())
    answer = http.ask("POST", "/v1/runs", body=asked, idempotency_key=key)
    run_id, repeated = str(answer.json["run_id"]), REPLAYED in answer.headers
    replace_no_follow(note, f"{run_id}\n".encode())
    return RemoteRun(http, run_id, resumed=repeated)


_KEY: Final = "key:"
"""In place of the id of a run that is not known yet."""
REPLAYED: Final = "detent-replayed"


def _written(note: Path) -> str:
    try:
        return note.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _is_open(http: Http, run_id: str) -> bool:
    try:
        return http.get(f"/v1/runs/{run_id}")["ended_at"] is None
    except InvalidInput as exc:
        if exc.code != "UNKNOWN_RUN":
            raise
        return False
