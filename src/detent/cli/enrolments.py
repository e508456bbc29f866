"""`detent keys enrol|enrolments`: tokens that bring workers on other machines, with or without a server running."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from detent.cli.api_keys import LOCAL, Operator, iso
from detent.cli.page import Page
from detent.cli.shell import Shell, duration_ms, teaching, with_shell
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD

if TYPE_CHECKING:
    from detent.access.enrolments import EnrolmentToken

NAMES_MAX: Final = 256
_NAME: Final = re.compile(r"[^\x00-\x20\x7f-\x9f]{1,100}")


@click.command(
    "enrol",
    help=teaching(
        """Make a token that enrols machines as workers of `detent serve`. It is printed once and not stored: the ledger holds its
digest. A running server accepts it at once.

A token enrols one worker within an hour, for jobs of the workspace `local`, unless options say otherwise. A worker runs code
with the rights of its user: name only workspaces that you trust with that machine. `detent keys enrolments` lists tokens,
`detent keys revoke` revokes one.""",
        """  detent keys enrol
  detent keys enrol --workspace team-a --workspace team-b --label gpu --uses 8 --expires 1d
  detent worker --connect http://127.0.0.1:7733 --enrol dte_... --project .
""",
    ),
)
@click.option(
    "--workspace",
    "workspaces",
    metavar="NAME",
    multiple=True,
    help="A workspace whose jobs the workers run; may be repeated.  [default: local]",
)
@click.option("--all-workspaces", is_flag=True, help="Run jobs of every workspace, also of those made later.")
@click.option(
    "--pool",
    "pools",
    metavar="NAME",
    multiple=True,
    help="A pool that they may serve; may be repeated.  [default: all]",
)
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="A label that they get; may be repeated.")
@click.option("--uses", type=click.IntRange(min=1), default=1, show_default=True, help="How many workers it enrols.")
@click.option("--expires", metavar="DURATION", help="How long it lasts, such as 1d; at most 30d.  [default: 1h]")
@with_shell
def enrol(
    shell: Shell,
    *,
    workspaces: tuple[str, ...],
    all_workspaces: bool,
    pools: tuple[str, ...],
    labels: tuple[str, ...],
    uses: int,
    expires: str | None,
) -> int:
    """Make an enrolment token."""
    from detent.access.enrolments import RANDOM_BYTES, USES_MAX, EnrolmentDraft, create_enrolment  # noqa: PLC0415 - for `--help`
    from detent.owner.server_address import running  # noqa: PLC0415

    if workspaces and all_workspaces:
        raise click.UsageError("give either --workspace or --all-workspaces")
    _check_names("--pool", pools)
    _check_names("--label", labels)
    _check_names("--workspace", workspaces)
    if uses > USES_MAX:
        raise click.UsageError(f"--uses {uses}: a token enrols {USES_MAX:,} workers at most")
    lasts_ms = _lasts_ms(expires)
    tenants = None if all_workspaces else workspaces or (LOCAL,)
    with Operator(shell, LOCAL) as operator:
        for workspace in tenants or ():
            operator.insist_on_workspace(workspace)
        draft = EnrolmentDraft(tenants, pools or None, labels, uses, lasts_ms)
        made, token = create_enrolment(
            draft,
            operator.principal.credential_id,
            random=secrets.token_bytes(RANDOM_BYTES),
            now_ms=operator.now_ms,
        )
        operator.commit(made.creation())
        url, now_ms = running(operator.home), operator.now_ms
    document = {**to_map(made, 0, now_ms), "token": token.text}
    return shell.answer(document, lambda page: _draw_made(page, made, token.text, url))


@click.command(
    "enrolments",
    help=teaching(
        "List the enrolment tokens of the server, without their secrets: what they allow, how often they were used, when they expire.",
        """  detent keys enrolments
  detent keys enrolments --all -o json
""",
    ),
)
@click.option("--all", "ended", is_flag=True, help="List tokens that were used up, expired or were revoked, too.")
@with_shell
def list_enrolments(shell: Shell, *, ended: bool) -> int:
    """List enrolment tokens."""
    with Operator(shell, LOCAL, writes=False) as operator:
        tokens, uses = operator.enrolments()
        now_ms = operator.now_ms
    used = {token.enrolment_id: uses.get(token.secret, 0) for token in tokens}
    listed = [token for token in tokens if ended or token.state(used[token.enrolment_id], now_ms) == "active"]
    document = {"enrolments": [to_map(token, used[token.enrolment_id], now_ms) for token in listed]}

    def draw(page: Page) -> None:
        if not listed:
            page.line(Cell("no enrolment tokens in force; `detent keys enrol` makes one", FAINT))
            return
        rows = [_row(token, used[token.enrolment_id], now_ms) for token in listed]
        page.table(("TOKEN", "WORKSPACES", "POOLS", "LABELS", "USED", "STATE", "ENDS"), rows)

    return shell.answer(document, draw)


def to_map(token: EnrolmentToken, used: int, now_ms: int) -> dict[str, Any]:
    """A token as JSON has it, named as `/v1/enrolments` names its parts."""
    return {
        "enrolment_id": token.enrolment_id,
        "tenants": None if token.tenants is None else list(token.tenants),
        "pools": None if token.pools is None else list(token.pools),
        "labels": list(token.labels),
        "uses": token.uses,
        "used": used,
        "created_at": iso(token.created_ms),
        "expires_at": iso(token.expires_ms),
        "state": token.state(used, now_ms),
    }


def _draw_made(page: Page, made: EnrolmentToken, text: str, url: str | None) -> None:
    where = "every workspace" if made.tenants is None else f"jobs of {', '.join(made.tenants)}"
    page.line(Cell("made", GOOD), f" enrolment token {made.enrolment_id} for {where}")
    page.line()
    page.line(f"  {text}")
    page.line()
    number = "1 worker" if made.uses == 1 else f"{made.uses} workers"
    page.line(f"Copy it now: it is not shown again. It enrols {number} until {iso(made.expires_ms)}.")
    page.line("On the other machine, in a checkout of the project:")
    page.line(Cell(f"  detent worker --connect {url or 'URL'} --enrol {text} --project .", FAINT))
    if url is None:
        page.line(Cell("URL is where `detent serve` listens; no server runs on this home now.", FAINT))


def _row(token: EnrolmentToken, used: int, now_ms: int) -> list[Cellish]:
    state = token.state(used, now_ms)
    return [
        token.enrolment_id,
        _listed(token.tenants),
        _listed(token.pools),
        ", ".join(token.labels) or "-",
        f"{used} of {token.uses}",
        Cell(state, GOOD if state == "active" else BAD),
        Cell(iso(token.expires_ms) or "-", FAINT),
    ]


def _listed(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names)


def _lasts_ms(expires: str | None) -> int:
    from detent.access.enrolments import TTL_SECONDS, TTL_SECONDS_MAX  # noqa: PLC0415 - keeps `--help` fast

    if expires is None:
        return TTL_SECONDS * 1_000
    lasts_ms = duration_ms("--expires", expires, least_ms=1_000)
    if lasts_ms > TTL_SECONDS_MAX * 1_000:
        raise click.UsageError(f"--expires {expires}: an enrolment token lasts 30d at most")
    return lasts_ms


def _check_names(option: str, names: Sequence[str]) -> None:
    if len(names) > NAMES_MAX:
        raise click.UsageError(f"{option} may be given {NAMES_MAX} times at most, not {len(names)}")
    for name in names:
        if not _NAME.fullmatch(name):
            raise click.UsageError(f"{option} {name!r:.80} is not 1 to 100 characters without spaces")


COMMANDS: tuple[click.Command, ...] = (enrol, list_enrolments)
