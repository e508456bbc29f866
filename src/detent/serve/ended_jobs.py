"""The entity tags of jobs that have ended, so that a caller who asks again is told 304 without a look at the ledger.

A job that has ended stays as it is, and its tag is made of its row alone. For the HTTP loop alone.
"""

from __future__ import annotations

from typing import Final

KNOWN_MAX: Final = 10_000


class EndedJobs:
    """Tags of jobs that were read lately, under the workspace for which they were read."""

    def __init__(self) -> None:
        self._tags: dict[tuple[str, str], str] = {}

    def tag(self, workspace: str, job_id: str) -> str | None:
        """The tag of a job of this workspace that is known to have ended."""
        return self._tags.get((workspace, job_id))

    def ended(self, workspace: str, job_id: str, tag: str) -> None:
        """Remember a job that was read in this workspace."""
        if len(self._tags) >= KNOWN_MAX:
            del self._tags[next(iter(self._tags))]
        self._tags[workspace, job_id] = tag
