"""One process that works for several workspaces: what it submits, what answers for it, and what ends together."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.errors import StoreUnavailable
from detent.jobs.order import Call
from detent.owner.backend import commands_of
from detent.owner.home import make_home
from detent.owner.wiring import begin_ledger
from detent.reuse.work_keys import Found, Miss
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import Calls, JobRequest

CODE = "def double(n):\n    return 2 * n\n"


def test_equal_work_answers_within_its_workspace_and_never_in_another(tmp_path: Path) -> None:
    """X-148"""
    (tmp_path / "tasks.py").write_text(CODE)
    home = make_home(tmp_path / ".detent", begin_ledger)
    request = JobRequest(
        Call(kind="python", target="tasks:double", arguments=(4,), base=str(tmp_path)), "tasks:double", reuse=True
    )
    with Runtime(home, workers=0, idle=True) as work:
        for tenant in ("local", "team-a"):
            own = work.for_tenant(tenant)
            calls = Calls(own.backend, own.work_keys)
            (key,) = calls.work_keys_of([request])
            found = calls.find(request, key)
            assert isinstance(found, Miss), f"{tenant} was answered by another workspace"
            submission = calls.submission(request, key, own.backend.new_uuid(), found)
            (answer,) = work.session.ask(
                commands_of([submission]), content=submission.inline, work=[submission.work] if submission.work else []
            )
            assert answer.refusal is None
            assert answer.job is not None
            assert answer.job.tenant_id == tenant
            again = calls.find(request, key)
            assert isinstance(again, Found)
            assert again.job_id == submission.manifest.job_id


def test_the_views_of_a_runtime_end_with_it(tmp_path: Path) -> None:
    home = make_home(tmp_path / ".detent", begin_ledger)
    work = Runtime(home, workers=0, idle=True)
    other = work.for_tenant("team-a")
    assert other.backend.tenant == "team-a"
    assert work.backend.tenant == "local"
    assert other.session is work.session
    assert work.for_tenant("local") is work
    other.close()
    assert list(other.backend.reader.jobs()) == []
    work.close()
    with pytest.raises(StoreUnavailable):
        _ = other.backend.reader
