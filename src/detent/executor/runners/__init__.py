"""Runs platform jobs: one runner for each job type, on top of the sandbox.

Start reading at `runners`; `execute` and `tool_jobs` are the job types, `inside` holds what the second runs in its
jails.
"""

from __future__ import annotations

from detent.executor.runners.model import Artifacts
from detent.executor.runners.runners import Attempt, Runners
from detent.executor.runners.tools import env_version, missing_tools

__all__ = ["Artifacts", "Attempt", "Runners", "env_version", "missing_tools"]
