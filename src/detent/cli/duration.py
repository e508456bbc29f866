"""A duration that an option of a command is given: as contracts write them, or a number of seconds."""

from __future__ import annotations

import click


def duration_ms(option: str, written: str, *, least_ms: int | None = None) -> int:
    """Milliseconds of what was typed; a usage error that says how one is written for anything else."""
    from detent.contract.durations import HOW_TO_WRITE, BadDuration, parse_duration  # noqa: PLC0415 - for `--help`

    limits = {} if least_ms is None else {"least_ms": least_ms}
    try:
        return parse_duration(float(written) if written.replace(".", "", 1).isdecimal() else written, **limits)
    except BadDuration as exc:
        raise click.UsageError(f"{option} {exc}: {HOW_TO_WRITE}") from exc
