"""What all commands share: options, the way to a home, output as a page or JSON, failures, Ctrl-C.

What all commands share: the options, the way to a home, and the choice between a page and one JSON document.

Ctrl-C while a command drives something that can be cancelled, or left as it stands.

What a command that could not do its work says: lines for people, and one JSON document for programs.

Under ``-o json`` standard output has exactly one document, whether a command succeeds or not: ``{"ok": false, "error": {...}}`` when
it could not answer. The lines on standard error are the same either way.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from detent.cli.page import Page
from detent.cli.terminal import EXIT_CODES
from detent.errors import InvalidInput, registered
from detent.pages.text import safe

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.pages.sheet import Told
    from detent.remote.home import RemoteHome

JSON, TEXT = "json", "text"
RESOURCE_MAX: Final = 2**31
PATIENCE_SECONDS = 5.0
"""For how long a command asks a server again that cannot be reached or is busy."""
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
    server_option: str | None = None
    pin_option: str | None = None

    def server(self) -> RemoteHome | None:
        """The home behind the server that is meant, by --connect or by ``DETENT_URL``; None for one on this machine.

        A home that is named by --home goes before the variable: what is typed counts more than what is set.
        """
        if self.server_option is None and self.home_option is not None:
            return None
        from detent.remote.address import address_of  # noqa: PLC0415 - keeps `--help` fast

        address = address_of(os.environ, self.server_option, self.pin_option)
        if address is None:
            return None
        from detent.remote.heads import check_head  # noqa: PLC0415
        from detent.remote.home import RemoteHome  # noqa: PLC0415
        from detent.remote.http import Http  # noqa: PLC0415
        from detent.remote.operator_key import sign_requests  # noqa: PLC0415

        http = Http(address, patience=PATIENCE_SECONDS, agent="detent-cli", greet=check_head)
        return RemoteHome(sign_requests(http), self.note)

    def home(self, *, writes: bool = False, looks: bool = True) -> Home:
        """The home to work on; a `HomeError` says how to get one when there is none.

        A copy of another home is named as one: to a command that only looks in a note, to one that writes by `HomeCopied`.
        """
        self.insist_on_local()
        found = self._find()
        if writes or looks:
            self._say_copied(found, writes=writes)
        return found

    def insist_on_local(self) -> None:
        """Refuse to use a home of this machine where the user means one behind a server."""
        if self.home_option is None:
            from detent.cli.local_only import refuse_variable  # noqa: PLC0415 - keeps `--help` fast

            refuse_variable(os.environ)

    def _say_copied(self, home: Home, *, writes: bool) -> None:
        from detent.owner.state_directory import COPY_HINT, copied, copied_from  # noqa: PLC0415

        original = copied_from(home, os.environ)
        if original is None:
            return
        if writes:
            raise copied(home, original)
        self.note(f"note: this home is a copy of {original}. It is read-only until {COPY_HINT}")

    def _find(self) -> Home:
        from detent.errors import HomeError  # noqa: PLC0415
        from detent.owner.home import find_home, is_home  # noqa: PLC0415 - keeps `--help` fast
        from detent.owner.place import HOME_VARIABLE  # noqa: PLC0415

        found = find_home(Path.cwd(), os.environ, self.home_option)
        if found is not None:
            return found
        named = self.home_option or os.environ.get(HOME_VARIABLE) or None
        where = f"{Path.cwd()} or above it" if named is None else str(named)
        hint = "`detent init` creates one; --home or DETENT_HOME points to another"
        if named is not None and is_home(Path(named) / ".detent"):
            hint = f"did you mean {Path(named) / '.detent'}?"
        raise HomeError(f"no home in {where}", hint=hint)

    def tell(self, told: Told) -> int:
        """Print an answer and what is said beside it, and return the exit code that it stands for."""
        code = self.answer(told.document, told.sheet.onto, code=told.code)
        for note in told.notes:
            self.note(note)
        return code

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

    def say_page(self, url: str | None, workspace: str, *words: str) -> None:
        """Name the page of a server's dashboard, such as ``runs``, ID; where there is no server, nothing."""
        if url is not None:
            self.note(f"dashboard  {'/'.join([url, 'w', workspace, *words])}")

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


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--connect URL` and `--pin`."""
    connect = click.option(
        "--connect",
        "server",
        metavar="URL",
        help="Work on the home of this server instead; DETENT_KEY holds the key.  [default: DETENT_URL, if it is set]",
    )
    pin = click.option(
        "--pin",
        metavar="sha256:HEX",
        help="With --connect: trust the server by the SHA-256 of its public key alone.  [default: DETENT_PIN]",
    )
    return connect(pin(command))


def connectable(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command its `Shell`, also for a home behind a server."""

    @format_option
    @server_options
    @home_option
    @click.pass_context
    @wraps(command)
    def invoke(
        context: click.Context,
        /,
        *args: Any,
        home_path: Path | None,
        output_format: str,
        server: str | None,
        pin: str | None,
        **options: Any,
    ) -> int:
        if server is not None and home_path is not None:
            raise click.UsageError(
                "--home names a home on this machine, --connect one behind a server: give one of them"
            )
        ending = context.obj if isinstance(context.obj, Ending) else Ending()
        return command(Shell(home_path, output_format, ending, server, pin), *args, **options)

    return invoke


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


def list_by_default(context: click.Context, lister: click.Command, **options: Any) -> int:
    """What a group does that is typed without a subcommand: it lists, with its own options."""
    if context.invoked_subcommand is not None:
        typed = click.core.ParameterSource.COMMANDLINE
        if any(context.get_parameter_source(name) is typed for name in options):
            raise click.UsageError("options of a subcommand come after its name", context)
        return 0
    code = context.invoke(lister, **options)
    return code if isinstance(code, int) else 0


def teaching(what: str, examples: str) -> str:
    """A help text: what the command does, examples to copy, and what its exit code means."""
    return f"{what.strip()}\n\n\b\nExamples:\n{examples.rstrip()}\n\n{EXIT_CODES}"


def duration_ms(option: str, written: str, *, least_ms: int | None = None) -> int:
    """Milliseconds of what was typed; a usage error that says how one is written for anything else."""
    from detent.contract.words import HOW_TO_WRITE, BadDuration, parse_duration  # noqa: PLC0415 - for `--help`

    limits = {} if least_ms is None else {"least_ms": least_ms}
    try:
        return parse_duration(float(written) if written.replace(".", "", 1).isdecimal() else written, **limits)
    except BadDuration as exc:
        raise click.UsageError(f"{option} {exc}: {HOW_TO_WRITE}") from exc


def resources_of(written: Sequence[str]) -> dict[str, int]:
    """Amounts of resources as they were typed, such as gpu=2, by name."""
    found: dict[str, int] = {}
    for text in written:
        name, equals, amount = text.partition("=")
        if not equals or not name or not (amount.isascii() and amount.isdecimal()) or int(amount) > RESOURCE_MAX:
            raise InvalidInput(f"--resource {text!r:.80} is not a name and a number", hint="write it as gpu=2")
        found[name] = int(amount)
    return found


class Interruptible(Protocol):
    """A run that a command drives."""

    def cancel(self, reason: str) -> object:
        """End it as cancelled."""

    def stop(self) -> object:
        """Leave it as it stands, to be resumed."""


@contextmanager
def interrupts(handle: Interruptible) -> Iterator[None]:
    """Ctrl-C cancels the run; once more, or a request to terminate, leaves it as it stands."""
    seen: list[int] = []

    def interrupted(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        cancels = number == signal.SIGINT and len(seen) == 1
        # On a thread of its own: this one may hold, at this very moment, the lock that the answer needs.
        answer = partial(handle.cancel, "interrupted") if cancels else handle.stop
        threading.Thread(target=answer, name="detent-interrupt", daemon=True).start()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ASKED = re.compile(r"-[A-Za-z]*?o(?P<format>.*)")
_END_OF_OPTIONS = "--"


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """Why a command ended without an answer; its code says with which exit code."""

    code: str
    message: str
    hint: str | None = None
    retryable: bool | None = None
    """None: as the registry says of the code."""
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return registered(self.code).exit_code

    def lines(self, *, named: bool = True) -> list[str]:
        """For people; an error with several reasons has a line for each. ``named``: with the code behind it."""
        listed = self.details.get("errors")
        reasons = [_reason(one) for one in listed] if isinstance(listed, list) else []
        code = f" ({self.code})" if named else ""
        several = bool(reasons) and "\n".join(reasons) == self.message
        said = [f"error: {reason}{code}" for reason in (reasons if several else [self.message])]
        return [*said, f"hint:  {self.hint}"] if self.hint else said

    def document(self) -> dict[str, object]:
        """The one document, as data."""
        entry = registered(self.code)
        error = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": entry.retryable if self.retryable is None else self.retryable,
            "exit_code": entry.exit_code,
            "details": dict(self.details),
        }
        return {"ok": False, "error": error}

    def json(self) -> str:
        """The one document."""
        return json.dumps(self.document(), indent=2, default=str)


def _reason(one: object) -> str:
    """One of several reasons; a fault of a document is told with its path."""
    return f"{one['path']}: {one['message']}" if isinstance(one, Mapping) and "path" in one else str(one)


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, also one that cannot be parsed; the last ``-o`` counts."""
    asked = ""
    words = words[: words.index(_END_OF_OPTIONS)] if _END_OF_OPTIONS in words else words
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if (found := _ASKED.fullmatch(word)) is not None:
            asked = found["format"] or following
    return asked == "json"
