"""The way in: finds the command, runs it, and turns every end into an exit code and a message without a traceback.

The table below is all that `detent --help` needs; a command's module, and everything behind it, is loaded when that command
is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from detent.cli.shell import STANDARD_OUTPUT, CommandFailure, Ending, ReaderGone, wants_json
from detent.cli.terminal import EXIT_CODES
from detent.errors import EXIT_FAILED, DetentError, InvariantBroken
from detent.pages.text import safe
from detent.version import __version__

DEBUG_VARIABLE = "DETENT_DEBUG"
CLOSE = 0.7
"""How similar a word must be to count as a typo: `serve` is not a typo of `erase`."""

COMMANDS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "Run a pipeline; an interrupted run resumes where it stopped.",
        "map": "Call a function on every file or row; commit results in order, exactly once.",
        "submit": "Submit a platform job: a payload with its limits, checked whole.",
        "cancel": "Cancel a run or a job, in this process or another.",
        "retry": "Run the failed and cancelled parts of a run again.",
    },
    "Write": {
        "validate": "Check contract files: report what is wrong, where, and how to fix it.",
        "plan": "Show what a contract would run, in which order, and what would be reused.",
        "schema": "Print the JSON Schema of contracts, payloads or results, for editors and programs.",
    },
    "Look": {
        "list": "List the runs of this home, newest first, or its jobs.",
        "show": "Show a run or job: its state and its history.",
        "result": "Print the signed result of a platform job, checked.",
        "artifacts": "List the files that a platform job made, or copy them into a directory.",
        "logs": "Print the output of jobs, for every attempt; -f follows it.",
        "explain": "Explain why a job or step waits, ran, was reused, retried, refused or dropped.",
        "metrics": "Print the metrics of this home for Prometheus.",
    },
    "Prove": {
        "export": "Export the ledger, or one run, to a file that others can check.",
        "verify": "Check that a history is complete and untouched.",
        "replay": "Replay the recorded commands and compare every byte.",
        "trace": "Write the decisions of a run, or of the whole ledger, line by line.",
        "compare": "Compare two histories and name the first difference, or rank runs.",
    },
    "Share": {
        "serve": "Serve this home over HTTP, for programs and people.",
        "dashboard": "Open this home's dashboard in a browser.",
        "worker": "Run jobs of a served home, in a process of its own.",
        "pools": "List pools of workers that a server starts, or scale one.",
        "schedules": "Have a server run contracts by their schedules.",
    },
    "Keep": {
        "init": "Create a home here; in an empty directory, an example project too.",
        "keys": "Show who may sign what; make API keys, workspaces and members.",
        "copy": "Give a copied home its own name and keys.",
        "doctor": "Check the home and report problems.",
        "partitions": "Show who owns each partition, and how far its log has come.",
        "replicas": "List registered replicas, or remove one.",
        "erase": "Erase content permanently; the history still verifies.",
        "gc": "Remove content that no record refers to.",
    },
}


class Commands(click.Group):
    """All commands by name, loaded one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every name, in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command's module and give the command in it."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from detent.cli.local_only import refusing  # noqa: PLC0415 - loads nothing that a command does not

        command = import_module(f"detent.cli.{cmd_name}").command
        return refusing(command, cmd_name) if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed, or name the one that was probably meant."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

            close = get_close_matches(args[0], known, 1, CLOSE)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"there is no command {args[0]!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by what they are for, without loading any."""
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


cli = Commands(
    "detent",
    help="""Detent keeps a signed history of every job: what ran, why, and how it ended. Anyone can check it offline.

\b
Examples:
  detent init                     create a home, and an example project in an empty directory
  detent run pipeline.yaml        run it; finished work is reused, not repeated
  detent plan pipeline.yaml       show what it would run, step by step, and why
  detent list                     list what has run here
  detent show JOB                 show the history of one job
  detent export --output a.detent, then
  detent verify a.detent --root sha256:...

`detent COMMAND --help` explains each command.

"""
    + EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
cli = click.version_option(__version__, "-V", "--version", prog_name="detent", message="%(prog)s %(version)s")(cli)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; every error has been reported on standard error."""
    ending = Ending()
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # A terminal without UTF-8 must not make a command fail.
    try:
        code = cli.main(words, "detent", standalone_mode=False, obj=ending)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        _drop_output()  # The reader has seen enough.
        return ending.code
    except BaseException as exc:  # noqa: BLE001 - this is where every end becomes an exit code
        return _explained(exc, words, ending)
    return code if isinstance(code, int) else 0


def _explained(exc: BaseException, words: Sequence[str], ending: Ending) -> int:
    """Say what went wrong, as one JSON document too where one was asked for, and give the exit code it stands for."""
    if isinstance(exc, click.exceptions.Exit):
        return exc.exit_code
    if isinstance(exc, SystemExit):
        return exc.code if isinstance(exc.code, int) else EXIT_FAILED
    if isinstance(exc, DetentError | OSError | InvariantBroken) or not isinstance(
        exc, click.ClickException | click.Abort | KeyboardInterrupt
    ):
        _debug(exc)
    failure, lines = _failure(exc, words)
    if wants_json(words) and not ending.answered:
        _write_json(failure)
    _say(*lines)
    return failure.exit_code


def _failure(exc: BaseException, words: Sequence[str]) -> tuple[CommandFailure, list[str]]:
    """What went wrong as data, and as the lines that people read."""
    if isinstance(exc, click.Abort | KeyboardInterrupt):
        return CommandFailure("COMMAND_INTERRUPTED", "interrupted"), ["interrupted"]
    if isinstance(exc, click.ClickException):
        command = exc.ctx.command_path if isinstance(exc, click.UsageError) and exc.ctx is not None else _typed(words)
        if isinstance(exc, click.exceptions.NoArgsIsHelpError):
            failure = CommandFailure(
                "INVALID_PARAMS", f"{command} needs arguments", f"`{command} --help` shows how it is used"
            )
            return failure, [*exc.format_message().splitlines()]
        failure = CommandFailure(
            "INVALID_PARAMS", _first_small(exc.format_message()), f"`{command} --help` shows how it is used"
        )
        return failure, failure.lines(named=False)
    if isinstance(exc, DetentError):
        failure = CommandFailure(exc.code, str(exc), exc.hint, exc.retryable, exc.details)
        return failure, failure.lines()
    if isinstance(exc, OSError):
        failure = CommandFailure("IO_ERROR", *_unusable(exc))
        return failure, failure.lines(named=False)
    what = str(exc) if isinstance(exc, InvariantBroken) else f"{type(exc).__name__}: {exc}"
    hint = f"this is a bug in Detent, not in your work; set {DEBUG_VARIABLE}=1 to see where, and please report it"
    failure = CommandFailure("INVARIANT_VIOLATION", what, hint)
    return failure, failure.lines()


def _write_json(failure: CommandFailure) -> None:
    try:
        sys.stdout.write(failure.json() + "\n")
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _unusable(exc: OSError) -> tuple[str, str]:
    """What the system refused, and what to do about it; the error names no file when the call was given none."""
    what, hint = exc.strerror or str(exc), "check that it exists and that you may use it"
    try:
        sys.stdout.flush()  # Where output is buffered, what could not be written is still waiting, and fails again.
    except OSError:
        _drop_output()
        exc.filename = exc.filename or STANDARD_OUTPUT
    if exc.filename == STANDARD_OUTPUT:
        return f"{STANDARD_OUTPUT} cannot be written: {what}", "free some space there, or redirect it elsewhere"
    if exc.filename:
        return f"{exc.filename}: {what}", hint
    if isinstance(exc, FileNotFoundError) and not _is_somewhere():
        return "the working directory no longer exists", "change to one that does"
    return what, hint


def _is_somewhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        return False
    return True


def _drop_output() -> None:
    """Let what waits to be written go nowhere: the interpreter flushes again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _typed(words: Sequence[str]) -> str:
    """The command that was typed, as far as it is one; Click does not say for an option that lacks its value."""
    known = [name for section in COMMANDS.values() for name in section]
    return " ".join(["detent", *(word for word in words[:1] if word in known)])


def _say(*lines: str) -> None:
    try:
        sys.stderr.write("".join(f"{safe(line)}\n" for line in lines))
        sys.stderr.flush()
    except OSError:
        pass  # Standard error is closed; the exit code still tells.


def _debug(exc: BaseException) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        import traceback  # noqa: PLC0415 - for bugs alone

        traceback.print_exception(exc)


def _first_small(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
