"""`detent keys create|api|rotate|revoke`: API keys of a server, with or without one running."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, duration_ms, teaching, with_shell
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.access.changes import Change
    from detent.access.enrolments import EnrolmentTokens
    from detent.access.scopes import Principal
    from detent.access.state import AccessState, Key

ROLE_NAMES = ("viewer", "submitter", "operator", "auditor", "admin", "server_admin")
LOCAL = "local"
CREDENTIAL = "home"
"""What records name in place of a key for commands of the user whose home it is."""
workspace_option = click.option(
    "--workspace", metavar="NAME", default=LOCAL, show_default=True, help="The workspace that it is for."
)


@click.command(
    "create",
    help=teaching(
        """Make an API key for programs that talk to `detent serve`. Its secret is printed once and not stored: the ledger
holds its digest. A running server accepts the key at once.

A role is a set of scopes: viewer reads, submitter submits, operator cancels and retries too, auditor reads the audit trail, admin
manages the workspace, server_admin the server. --scope lists single scopes instead. A key lasts 90 days unless --expires says
otherwise, and at most 400.""",
        """  detent keys create ci --role submitter
  detent keys create app --scope jobs:write --scope jobs:read --expires 30d --workspace team-a
  detent keys create exporter --scope metrics:read --expires never
""",
    ),
)
@click.argument("name")
@click.option("--role", type=click.Choice(ROLE_NAMES), help="The role whose scopes the key gets.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope that the key gets; may be repeated.")
@click.option("--expires", metavar="DURATION", help="How long it lasts, such as 30d; or never.  [default: 90d]")
@click.option("--member", metavar="PRINCIPAL", help="The member that it acts for.  [default: a principal of its own]")
@click.option(
    "--public-key", metavar="HEX", help="The key with which its holder signs requests; `detent keys operator` tells it."
)
@workspace_option
@with_shell
def create(  # noqa: PLR0913 - one for each option
    shell: Shell,
    *,
    name: str,
    role: str | None,
    scopes: tuple[str, ...],
    expires: str | None,
    member: str | None,
    public_key: str | None,
    workspace: str,
) -> int:
    """Make a key."""
    from detent.access.changes import KEY_RANDOM_BYTES, KeyDraft, create_key  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.names import put_names  # noqa: PLC0415

    if (role is None) == (not scopes):
        raise click.UsageError("give either --role or --scope")
    never = expires == "never"
    lasts_ms = None if never or expires is None else duration_ms("--expires", expires)
    draft = KeyDraft(role, scopes or None, lasts_ms, never, member, _public_bytes(public_key))
    with Operator(shell, workspace) as operator:
        change, token = create_key(
            operator.state,
            operator.principal,
            draft,
            random=secrets.token_bytes(KEY_RANDOM_BYTES),
            now_ms=operator.now_ms,
        )
        named = {change.object_id: name}
        if member is None:
            named[change.parameters["principal_id"]] = name
        put_names(operator.home, named)
        operator.commit(change)
        key = operator.key(token.token_id)
    return _answer_secret(shell, key, name, token.text, "made", operator.now_ms)


@click.command(
    "api",
    help=teaching(
        "List the API keys of a workspace: who they act for, what they may do, and when they expire.",
        """  detent keys api
  detent keys api --workspace team-a --all -o json
""",
    ),
)
@workspace_option
@click.option("--all", "ended", is_flag=True, help="List keys that were revoked lately, too.")
@with_shell
def list_keys(shell: Shell, *, workspace: str, ended: bool) -> int:
    """List keys."""
    from detent.owner.names import read_names  # noqa: PLC0415 - keeps `--help` fast

    with Operator(shell, workspace, writes=False) as operator:
        keys = list(operator.state.keys(workspace, ended=ended))
        names, now_ms = read_names(operator.home), operator.now_ms
    document = {"workspace": workspace, "keys": [to_map(key, names.get(key.key_id), now_ms) for key in keys]}

    def draw(page: Page) -> None:
        if not keys:
            page.line(Cell("no API keys; `detent keys create NAME --role ROLE` makes one", FAINT))
            return
        rows: list[list[Cellish]] = [_row(key, names.get(key.key_id, "-"), now_ms) for key in keys]
        page.table(("KEY", "NAME", "ROLE", "SCOPES", "STATE", "ENDS"), rows)

    return shell.answer(document, draw)


@click.command(
    "revoke",
    help=teaching(
        """Revoke an API key at once; a running server also closes the key's open streams. With the id of an enrolment token: stop
it from enrolling more workers. Workers that it enrolled go on; `POST /v1/workers/ID/retire` retires one.""",
        """  detent keys revoke 7abq2lwx3mnz
  detent keys revoke 7abq2lwx3mnz --workspace team-a --reason "laptop lost"
  detent keys revoke dte_bv3kq5oyzw2h
""",
    ),
)
@click.argument("key_id", metavar="KEY")
@workspace_option
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@with_shell
def revoke(shell: Shell, *, key_id: str, workspace: str, reason: str | None) -> int:
    """Revoke a key."""
    from detent.access.changes import revoke_key  # noqa: PLC0415 - keeps `--help` fast

    revoked = bare_id(key_id)
    with Operator(shell, workspace) as operator:
        enrolment = None if operator.state.key(revoked) else operator.enrolments()[0].get(revoked)
        if enrolment is None:
            change, said, what = revoke_key(operator.state, operator.principal, revoked), "key_id", "API key"
        else:
            change, said, what = enrolment.revocation(), "enrolment_id", "enrolment token"
        operator.commit(change, reason)
    document = {said: revoked, "state": "revoked"}
    return shell.answer(document, lambda page: page.line(Cell("revoked", GOOD), f" {what} {revoked}"))


def rotate(shell: Shell, key_id: str, workspace: str) -> int:
    """Give an API key a second secret: the other half of `detent keys rotate`."""
    from detent.access.changes import rotate_key  # noqa: PLC0415 - keeps `--help` fast
    from detent.access.tokens import SECRET_BYTES  # noqa: PLC0415
    from detent.owner.names import read_names  # noqa: PLC0415

    with Operator(shell, workspace) as operator:
        change, token = rotate_key(
            operator.state,
            operator.principal,
            bare_id(key_id),
            random=secrets.token_bytes(SECRET_BYTES),
            now_ms=operator.now_ms,
        )
        operator.commit(change)
        key, name = operator.key(token.token_id), read_names(operator.home).get(token.token_id, "-")
    return _answer_secret(shell, key, name, token.text, "rotated", operator.now_ms)


class Operator:
    """The user of a home, who changes access by commands; through the server's own process where one runs."""

    def __init__(self, shell: Shell, workspace: str, *, writes: bool = True) -> None:
        from detent.access.changes import local_principal  # noqa: PLC0415 - keeps `--help` fast
        from detent.owner.session import Session  # noqa: PLC0415
        from detent.owner.wiring import Parts  # noqa: PLC0415

        home = shell.home(writes=writes)
        self._parts, self._ledger = Parts(), home.ledger
        self._session = Session(home, self._parts) if writes else None
        self.home: Path = home.path
        self.now_ms = self._parts.clock.wall_ms()
        self.principal: Principal = local_principal(CREDENTIAL, workspace)
        self.state: AccessState = self._read()
        try:
            self.insist_on_workspace(workspace)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def commit(self, change: Change, reason: str | None = None) -> None:
        """Have a change recorded, and read what holds now."""
        from detent.owner.operating import commit, new_request_id, operate  # noqa: PLC0415

        route = f"detent {' '.join(click.get_current_context().command_path.split()[1:])}"
        command = operate(self.principal, change, request_id=new_request_id(), route=route, reason=reason)
        assert self._session is not None
        commit(self._session, [command])
        self.state = self._read()

    def key(self, key_id: str) -> Key:
        """A key that was just made or rotated."""
        from detent.errors import RequestRefused  # noqa: PLC0415

        key = self.state.key(key_id)
        if key is None:
            raise RequestRefused(f"key {key_id} was revoked meanwhile", code="CONFLICT", hint="make another one")
        return key

    def enrolments(self) -> tuple[EnrolmentTokens, dict[bytes, int]]:
        """The enrolment tokens, and how often each was used."""
        from detent.owner.operating import read_enrolments  # noqa: PLC0415

        with self._parts.open_reader(self._ledger) as reader:
            return read_enrolments(reader)

    def insist_on_workspace(self, workspace: str) -> None:
        """Refuse a workspace that does not exist."""
        from detent.errors import InvalidInput  # noqa: PLC0415

        if self.state.workspace(workspace) is None:
            raise InvalidInput(
                f"there is no workspace {workspace!r:.80}", hint="`detent keys workspace list` lists them"
            )

    def _read(self) -> AccessState:
        from detent.owner.operating import read_access  # noqa: PLC0415

        with self._parts.open_reader(self._ledger) as reader:
            return read_access(reader)


@click.command(
    "operator",
    help=teaching(
        """Make the key with which you sign requests to servers, or show its public half. The key stays on this machine, in a file that
only you can read. Give the public half to the person who makes your API key; commands with --connect then sign what changes something,
and the ledger proves that it was you who asked.""",
        """  detent keys operator
  detent keys create ann --role operator --public-key 5f3a…
""",
    ),
)
@with_shell
def operator_command(shell: Shell) -> int:
    """Make or show the key of an operator."""
    import os  # noqa: PLC0415 - keeps `--help` fast

    from detent.remote.operator_key import operator_key  # noqa: PLC0415

    key = operator_key(os.environ, make=True)
    assert key is not None
    document = {"public_key": key.public_key.hex(), "signing_key": key.key_id.hex()}

    def draw(page: Page) -> None:
        page.line(key.public_key.hex())
        page.line(Cell(f"  detent keys create NAME --role operator --public-key {key.public_key.hex()}", FAINT))

    return shell.answer(document, draw)


def _public_bytes(written: str | None) -> bytes | None:
    if written is None:
        return None
    try:
        return bytes.fromhex(written)
    except ValueError:
        raise click.UsageError("--public-key is 64 hex digits, as `detent keys operator` tells them") from None


def bare_id(written: str) -> str:
    """The id of a key or an enrolment token, also where it was written as in one: `dtk_...`, `dte_...`."""
    return written.removeprefix("dtk_").removeprefix("dte_").split("_")[0]


def to_map(key: Key, name: str | None, now_ms: int) -> dict[str, Any]:
    """A key as JSON has it."""
    from detent.canon.crypto import key_id_of  # noqa: PLC0415 - keeps `--help` fast

    return {
        "key_id": key.key_id,
        "name": name,
        "workspace": key.workspace,
        "principal": key.principal_id,
        "role": key.role,
        "scopes": sorted(key.scopes),
        "state": key.state(now_ms),
        "created_at": iso(key.created_ms),
        "expires_at": iso(key.expires_ms),
        "revoked_at": iso(key.revoked_ms),
        "made_by": key.made_by,
        "signing_key": None if key.public_key is None else key_id_of(key.public_key).hex(),
    }


def _answer_secret(shell: Shell, key: Key, name: str, secret: str, done: str, now_ms: int) -> int:
    document = {**to_map(key, name, now_ms), "secret": secret}

    def draw(page: Page) -> None:
        page.line(Cell(done, GOOD), f" API key {key.key_id} for workspace {key.workspace}")
        page.line()
        page.line(f"  {secret}")
        page.line()
        page.line("Copy it now: it is not shown again. Programs read it from DETENT_KEY:")
        page.line(Cell(f"  export DETENT_KEY={secret}", FAINT))
        if done == "rotated":
            page.line("The old secret stays valid for another 24 hours.")
        page.line(
            Cell(
                f"It expires at {iso(key.expires_ms)}." if key.expires_ms is not None else "It does not expire.", FAINT
            )
        )

    return shell.answer(document, draw)


def _row(key: Key, name: str, now_ms: int) -> list[Cellish]:
    state = key.state(now_ms)
    soon = key.expires_ms is None or key.expires_ms - now_ms < 7 * 86_400_000
    return [
        key.key_id,
        name,
        key.role or "-",
        f"{len(key.scopes)}" if key.role else ", ".join(sorted(key.scopes)),
        Cell(state, GOOD if state == "active" else BAD),
        Cell(iso(key.expires_ms) or "never", WARN if soon else FAINT),
    ]


def iso(moment_ms: int | None) -> str | None:
    """A moment as people and JSON have it."""
    from detent.canon import tick_to_iso  # noqa: PLC0415 - keeps `--help` fast

    return None if moment_ms is None else tick_to_iso(moment_ms, 1, 0)


COMMANDS: tuple[click.Command, ...] = (create, list_keys, revoke, operator_command)
