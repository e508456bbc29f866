"""What all commands share: the options, the way to a home, and the choice between a page and one JSON document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.terminal import EXIT_CODES, safe

if TYPE_CHECKING:
    from detent.owner.home import Home

JSON, TEXT = "json", "text"
STANDARD_OUTPUT = "standard output"
"""In place of the name of a file, which the system does not know here."""


@dataclass(slots=True)
class Ending:
    """How the command will end, known before it prints: a reader that closes the pipe early changes nothing about it."""

    code: int = 0
    answered: bool = False
    """Whether the answer has been begun: what goes wrong from then on makes no second document."""


class ReaderGone(Exception):
    """The reader of standard output has closed it. Not an `OSError`: click handles those in its own way."""


@dataclass(slots=True)
class Shell:
    """One invocation: where it looks, and how it answers."""

    home_option: Path | None = None
    format: str = TEXT
    ending: Ending = field(default_factory=Ending)

    def home(self, *, writes: bool = False, looks: bool = True) -> Home:
        """The home to work on; a `HomeError` says how to get one when there is none.

        A copy of another home is named as one: to a command that only looks in a note, to one that writes by `HomeCopied`.
        """
        found = self._find()
        if writes or looks:
            self._say_copied(found, writes=writes)
        return found

    def _say_copied(self, home: Home, *, writes: bool) -> None:
        from detent.owner.home_locations import COPY_HINT, copied, copied_from  # noqa: PLC0415

        original = copied_from(home, os.environ)
        if original is None:
            return
        if writes:
            raise copied(home, original)
        self.note(f"note: this home is a copy of {original}. It is read-only until {COPY_HINT}")

    def _find(self) -> Home:
        from detent.errors import HomeError  # noqa: PLC0415
        from detent.owner.home import HOME_VARIABLE, find_home, is_home  # noqa: PLC0415 - keeps `--help` fast

        found = find_home(Path.cwd(), os.environ, self.home_option)
        if found is not None:
            return found
        named = self.home_option or os.environ.get(HOME_VARIABLE) or None
        where = f"{Path.cwd()} or above it" if named is None else str(named)
        hint = "`detent init` creates one; --home or DETENT_HOME points to another"
        if named is not None and is_home(Path(named) / ".detent"):
            hint = f"did you mean {Path(named) / '.detent'}?"
        raise HomeError(f"no home in {where}", hint=hint)

    def answer(self, document: object, draw: Callable[[Page], None], *, code: int = 0) -> int:
        """Print the one JSON document or the page, and return the exit code."""
        self.ending.code, self.ending.answered = code, True
        try:
            if self.format == JSON:
                # ASCII only: what strangers named their jobs reaches no terminal as it is.
                sys.stdout.write(json.dumps(document, indent=2) + "\n")
            else:
                draw(Page())
            sys.stdout.flush()
        except BrokenPipeError as exc:
            raise ReaderGone from exc
        except OSError as exc:
            if exc.filename is None and not isinstance(exc, FileNotFoundError):
                exc.filename = STANDARD_OUTPUT
            raise
        return code

    def note(self, text: str) -> None:
        """Say something beside the answer."""
        sys.stderr.write(safe(text) + "\n")


def home_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--home DIR`."""
    return click.option(
        "--home",
        "home_path",
        metavar="DIR",
        type=click.Path(path_type=Path, readable=False),  # Whether it can be read is for `find_home` to say.
        help="The home to use.  [default: DETENT_HOME, else the nearest .detent in this directory or above]",
    )(command)


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-o json`."""
    return click.option(
        "-o",
        "output_format",
        type=click.Choice([TEXT, JSON]),
        default=TEXT,
        show_default=True,
        help="json: print one JSON document on standard output, also for errors; messages go to standard error.",
    )(command)


def with_shell(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command its `Shell`, made from the shared options."""

    @format_option
    @home_option
    @click.pass_context
    @wraps(command)
    def invoke(
        context: click.Context, /, *args: Any, home_path: Path | None, output_format: str, **options: Any
    ) -> int:
        ending = context.obj if isinstance(context.obj, Ending) else Ending()
        return command(Shell(home_path, output_format, ending), *args, **options)

    return invoke


def list_by_default(
    context: click.Context, lister: click.Command, *, home_path: Path | None, output_format: str
) -> int:
    """What a group does that is typed without a subcommand: it lists, with its own options."""
    if context.invoked_subcommand is not None:
        if home_path is not None or output_format != TEXT:
            raise click.UsageError("options of a subcommand come after its name", context)
        return 0
    code = context.invoke(lister, home_path=home_path, output_format=output_format)
    return code if isinstance(code, int) else 0


def teaching(what: str, examples: str) -> str:
    """A help text: what the command does, examples to copy, and what its exit code means."""
    return f"{what.strip()}\n\n\b\nExamples:\n{examples.rstrip()}\n\n{EXIT_CODES}"


def duration_ms(option: str, written: str, *, least_ms: int | None = None) -> int:
    """Milliseconds of what was typed; a usage error that says how one is written for anything else."""
    from detent.contract.durations import HOW_TO_WRITE, BadDuration, parse_duration  # noqa: PLC0415 - for `--help`

    limits = {} if least_ms is None else {"least_ms": least_ms}
    try:
        return parse_duration(float(written) if written.replace(".", "", 1).isdecimal() else written, **limits)
    except BadDuration as exc:
        raise click.UsageError(f"{option} {exc}: {HOW_TO_WRITE}") from exc
