"""What the planner said while a test looked: logging and warnings belong to the whole process, and others speak there, too."""

from __future__ import annotations

import logging

import pytest


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Our own records. A library's thread, or what the collector ends just now, may log beside us."""
    return [record for record in caplog.records if record.name.partition(".")[0] == "detent"]


def warned(recwarn: pytest.WarningsRecorder) -> list[str]:
    """All warnings but those of the collector, which come when something that another test left open is ended."""
    return [str(one.message) for one in recwarn.list if not issubclass(one.category, ResourceWarning)]
