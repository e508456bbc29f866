"""`detent keys`: who may sign what on the ledger, and who may ask a server for what."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli import api_keys, enrolments, workspaces
from detent.cli.page import Page
from detent.cli.shell import Shell, format_option, home_option, list_by_default, teaching, with_shell
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.owner.keys import KeysView, KeyView

API_KEY_ID = re.compile(r"(?:dtk_)?[a-z2-7]{12}(?:_.*)?")
ROTATED_ROLES = ("root", "manifest", "transition", "result", "log", "enroll")


@click.group(
    "keys",
    invoke_without_command=True,
    help=teaching(
        """Show the keys that this ledger trusts: role, range of batches, and whether the private key is in this home. Others
pin the root digest when they verify an export.

For `detent serve`: `detent keys create` makes API keys for programs and `detent keys api` lists them; `workspace` and `member`
manage who shares the server; `detent keys enrol` makes a token for a worker on another machine.""",
        """  detent keys
  detent keys show 1f0c
  detent keys rotate transition
""",
    ),
)
@format_option
@home_option
@click.pass_context
def command(context: click.Context, home_path: Path | None, output_format: str) -> int:
    """Show keys, unless a subcommand was given."""
    return list_by_default(context, list_keys, home_path=home_path, output_format=output_format)


@command.command(
    "list",
    help=teaching(
        "List the keys of the newest trust version, and key files that it does not know.",
        """  detent keys list
  detent keys list -o json
""",
    ),
)
@with_shell
def list_keys(shell: Shell) -> int:
    """List keys."""
    view = _view(shell)

    def draw(page: Page) -> None:
        page.fields(
            [
                ("ledger", view.origin),
                ("root", str(view.to_map()["root"])),
                ("trust", f"version {view.version}, {view.size} batches on the ledger"),
            ]
        )
        page.line()
        page.table(("ROLE", "KEY", "BATCHES", "STATE", "PRIVATE KEY"), [_row(key) for key in view.keys])
        for role, short in view.unused:
            page.line(Cell(f"{role}-{short}.key is not known to the ledger; nothing it signs counts", WARN))

    return shell.answer(view.to_map(), draw)


@command.command(
    "show",
    help=teaching(
        "Show one key, by the beginning of its id: what it may sign, from which batch to which, its public half.",
        """  detent keys show 1f0c
  detent keys show 1f0c -o json
""",
    ),
)
@click.argument("key_id", metavar="KEY")
@with_shell
def show_key(shell: Shell, key_id: str) -> int:
    """Show one key."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.owner.keys import ROLE_WORDS, versions_of  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts, load_trust  # noqa: PLC0415

    found = [key for key in _view(shell).keys if key.entry.key_id.hex().startswith(key_id.lower())]
    if len(found) != 1 or not key_id:
        problem = "no key's id begins" if not found else f"{len(found)} keys' ids begin"
        raise InvalidInput(f"{problem} with {key_id!r}", hint="`detent keys` lists them")
    home = shell.home()
    with Parts().open_reader(home.ledger) as reader:
        versions = versions_of(load_trust(reader, home.settings()), found[0].entry.key_id)
    document = {**found[0].to_map(), "trust_versions": versions}

    def draw(page: Page) -> None:
        key = found[0]
        page.fields(
            [
                ("key", key.entry.key_id.hex()),
                ("role", f"{key.entry.role}: {ROLE_WORDS[key.entry.role]}"),
                ("public key", key.entry.public_key.hex()),
                ("batches", _range(key)),
                ("state", _state_cell(key)),
                ("private key", _private_cell(key)),
                ("trust", "version " + ", ".join(map(str, versions))),
            ]
        )

    return shell.answer(document, draw)


@command.command(
    "rotate",
    help=teaching(
        """Create a new signing key for a role and record it on the ledger. What the old key signed stays valid; from the next batch
on only the new key counts. The pinned root digest does not change. Stop every process that works on this home first.

With the id of an API key: give that key a new secret, which is printed once. The old one stays valid for 24 hours. A server may be running.""",
        """  detent keys rotate transition
  detent keys rotate root -o json
  detent keys rotate 7abq2lwx3mnz --workspace team-a
""",
    ),
)
@click.argument("role", metavar="ROLE|KEY")
@api_keys.workspace_option
@with_shell
def rotate_key(shell: Shell, role: str, workspace: str) -> int:
    """Rotate the key of a role, or an API key."""
    from detent.owner.keys import rotate  # noqa: PLC0415 - keeps `--help` fast

    if role not in ROTATED_ROLES:
        if not API_KEY_ID.fullmatch(role):
            raise click.UsageError(
                f"{role!r:.80} is neither one of {', '.join(ROTATED_ROLES)} nor the id of an API key"
            )
        return api_keys.rotate(shell, role, workspace)
    home = shell.home(writes=True)
    rotated = rotate(home, role, environment=os.environ)
    document = {
        "role": rotated.role,
        "old_key_ids": [key_id.hex() for key_id in rotated.old_key_ids],
        "new_key_id": rotated.new_key_id.hex(),
        "trust_version": rotated.version,
        "from_position": rotated.from_position,
    }

    def draw(page: Page) -> None:
        page.line(Cell("rotated", GOOD), f" the {role} key; recorded on the ledger as trust version {rotated.version}")
        page.fields(
            [
                (
                    "old",
                    f"{', '.join(key.hex()[:16] for key in rotated.old_key_ids)}, valid before batch {rotated.from_position}",
                ),
                ("new", f"{rotated.new_key_id.hex()[:16]}, valid from batch {rotated.from_position} on"),
            ],
            indent="  ",
        )
        page.line(Cell(f"The old private key in {home.path / 'keys'} is no longer used; you may delete it.", FAINT))

    return shell.answer(document, draw)


@command.command(
    "admit",
    help=teaching(
        """Have the ledger trust the keys of another server, which `detent init --store URL --join ROOT` made on its machine. FILE is the join.json that
it wrote there; it holds public keys alone. Needs the root key in this home. Stop every process that works on the ledger first.""",
        """  detent keys admit join.json
  detent keys admit join.json -o json
""",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@with_shell
def admit_server(shell: Shell, file: Path) -> int:
    """Admit the keys of another server."""
    from detent.owner.joining import REQUEST_BYTES_MAX, JoinRequest  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.keys import admit  # noqa: PLC0415

    with file.open("rb") as opened:
        request = JoinRequest.parse(opened.read(REQUEST_BYTES_MAX + 1), str(file))
    admitted = admit(shell.home(writes=True), request, environment=os.environ)
    document = {
        "host": admitted.host,
        "key_ids": [key_id.hex() for key_id in admitted.key_ids],
        "trust_version": admitted.version,
        "from_position": admitted.from_position,
    }

    def draw(page: Page) -> None:
        count = len(admitted.key_ids)
        page.line(
            Cell("admitted", GOOD),
            f" {count} keys of {admitted.host}; recorded on the ledger as trust version {admitted.version}",
        )

    return shell.answer(document, draw)


for own in (*api_keys.COMMANDS, *enrolments.COMMANDS, *workspaces.GROUPS):
    command.add_command(own)


def _view(shell: Shell) -> KeysView:
    from detent.owner.keys import keys_view  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_reader(home.ledger) as reader:
        return keys_view(home, reader)


def _row(key: KeyView) -> list[Cellish]:
    return [key.entry.role, key.entry.key_id.hex()[:16], _range(key), _state_cell(key), _private_cell(key)]


def _range(key: KeyView) -> str:
    last = key.entry.to_position
    return f"{key.entry.from_position} to {last - 1}" if last is not None else f"{key.entry.from_position} on"


def _state_cell(key: KeyView) -> Cell:
    return Cell(key.state, GOOD if key.state == "active" else FAINT)


def _private_cell(key: KeyView) -> Cell:
    if key.private == "here":
        return Cell("here")
    style = BAD if key.state == "active" else FAINT
    return Cell(key.private if key.why is None else f"{key.private}: {key.why}", style)
