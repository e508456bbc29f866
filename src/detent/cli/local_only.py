"""Commands that work on this machine alone: how they refuse `--connect` and ``DETENT_URL``, and what to do instead.

A command that ignored a server would answer about another home than the one that its user means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from detent.errors import InvalidInput

_INSTEAD: Final = {
    "map": "run `detent map` as a step of a contract: `detent run FILE --connect URL`",
    "validate": "leave --connect out: it reads files of this machine and needs no home",
    "plan": "leave --connect out, or POST /v1/contracts:plan to the server",
    "schema": "leave --connect out: it reads no home",
    "metrics": "read GET /metrics of the server",
    "trace": "fetch the run with `detent export RUN --connect URL --output a.detent`; `detent compare` takes a bundle where it takes a trace",
    "erase": "POST /v1/jobs/JOB/erase to the server, with a key that has server:admin",
    "compare": "fetch what to compare with `detent export RUN --connect URL --output a.detent`, then `detent compare a.detent b.detent`",
    "init": "leave --connect out: it makes a home on this machine",
    "serve": "leave --connect out: it serves a home of this machine",
}
_USUAL: Final = "run it on the server's machine, with --home DIR"
_BY_NATURE: Final = frozenset({"init", "serve", "worker", "validate", "schema", "plan"})
"""Commands that no server could be meant for: ``DETENT_URL`` says nothing to them."""


def refusing(command: click.Command, name: str) -> click.Command:
    """A command that says what to do when it is told to connect, unless it can; so do its subcommands."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            refusing(one, name)
    if not any("--connect" in option.opts for option in command.params):

        def refuse(context: click.Context, _option: click.Parameter, value: str | None) -> None:
            if value is not None:
                raise click.UsageError(f"{_works_here(name)}: {_INSTEAD.get(name, _USUAL)}", context)

        option = click.Option(["--connect"], hidden=True, is_eager=True, expose_value=False, callback=refuse)
        command.params.append(option)
    return command


def refuse_variable(environment: Mapping[str, str]) -> None:
    """Refuse to look for a home while ``DETENT_URL`` names a server and nothing names a home."""
    from detent.owner.place import HOME_VARIABLE  # noqa: PLC0415 - keeps `--help` fast
    from detent.remote.address import URL_VARIABLE  # noqa: PLC0415

    context = click.get_current_context(silent=True)
    name = "" if context is None else "".join(context.command_path.split(" ")[1:2])
    if name in _BY_NATURE or not environment.get(URL_VARIABLE) or environment.get(HOME_VARIABLE):
        return
    raise InvalidInput(
        f"{_works_here(name)}, and {URL_VARIABLE} names a server",
        hint=f"{_INSTEAD.get(name, _USUAL)}; or name a home of this machine with --home DIR",
    )


def _works_here(name: str) -> str:
    return f"`detent {name}` works on this machine alone"
