"""`detent doctor`: look the home over."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.store.api import StoreReader

WORD = "forget"
_STYLES: Mapping[str, str] = {"ok": GOOD, "note": WARN, "wrong": BAD}


@click.command(
    "doctor",
    help=teaching(
        """Check the home: SQLite and its settings, the file system, space, permissions, keys, the owner process, the size of the
ledger, the newest tree head and the one kept outside the home. Each problem comes with what to do about it, and makes the
exit code 1. Nothing is changed. -o json also has what the kernel calls itself, its operators and its table of states.

It also tests which sandbox features this machine has, names the resulting profile, and says whether untrusted code runs
here or is refused; sandbox.required in config.toml decides that.

--accept-rollback is for one case: you replaced the home by an older copy on purpose, and Detent refuses to continue because
a tree head kept elsewhere is newer. It asks, then drops that tree head.""",
        """  detent doctor
  detent doctor --quick -o json
""",
    ),
)
@click.option("--quick", is_flag=True, help="Skip SQLite's integrity check, which reads the whole file.")
@click.option("--accept-rollback", is_flag=True, help="Forget the tree head kept outside the home.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def command(shell: Shell, *, quick: bool, accept_rollback: bool, yes: bool) -> int:
    """Check the home."""
    from detent.inspect.doctor import WRONG, examine, kernel_view, sandbox_of  # noqa: PLC0415 - keeps `--help` fast

    home = shell.home()
    forgotten = _forget(shell, yes=yes) if accept_rollback else None
    sandbox = sandbox_of(home)
    checks = list(examine(home, environment=os.environ, thorough=not quick, sandbox=sandbox))
    wrong = [check for check in checks if check.status == WRONG]
    document = {
        "home": str(home.path),
        "ok": not wrong,
        "kernel": kernel_view(),
        "sandbox": sandbox.to_map(),
        "checks": [check.to_map() for check in checks],
        "forgotten": forgotten,
    }

    def draw(page: Page) -> None:
        longest = max(len(check.name) for check in checks)
        for check in checks:
            page.hanging(
                [Cell(check.status.ljust(5), _STYLES[check.status]), f"  {check.name.ljust(longest)}  "], check.text
            )
            if check.hint is not None:
                page.hanging([" " * (longest + 9)], Cell(check.hint, FAINT))

    return shell.answer(document, draw, code=EXIT_FAILED if wrong else 0)


def _forget(shell: Shell, *, yes: bool) -> dict[str, object]:
    """Drop the kept tree heads of this ledger, once the person has said so."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.owner.state_directory import KeptHeads, binding_heads, forget_bound_heads, state_directory  # noqa: PLC0415
    from detent.owner.wiring import Parts, load_trust  # noqa: PLC0415

    home = shell.home(writes=True)
    with Parts().open_reader(home.ledger) as reader:
        sizes = [reader.head(partition).size for partition in range(reader.partitions)]
        trust = load_trust(reader, home.settings())
        keeper = KeptHeads(state_directory(os.environ), trust.origin)
        heads = dict(binding_heads(home, trust, os.environ))
        rolled_back = any(_contradicts(reader, kept, partition) for partition, kept in heads.items())
    nothing: dict[str, object] = {"path": str(keeper.path), "heads": {}}
    if not heads:
        shell.note(f"{keeper.path} holds no tree head: there is nothing to forget")
        return nothing
    if not rolled_back:
        shell.note(f"the tree head in {keeper.path} fits the ledger: there is no rollback to accept")
        return nothing
    for partition, (size, _) in sorted(heads.items()):
        now = sizes[partition] if partition < len(sizes) else 0
        shell.note(f"partition {partition}: the kept tree head covers {size} batches; the ledger has {now}")
    shell.note(
        "Forgetting it gives up everything that was on the ledger beyond its present end. This home can then no longer be"
        " told from one that someone else rolled back, and exports that others hold may show more than this ledger does."
    )
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(
                "this needs confirmation, and standard input is not a terminal", hint="add --yes to skip the question"
            )
        if click.prompt(f"Type {WORD} to continue", default="", show_default=False, err=True) != WORD:
            raise InvalidInput("nothing was changed")
    forget_bound_heads(home, trust, os.environ)
    return {"path": str(keeper.path), "heads": {str(partition): size for partition, (size, _) in sorted(heads.items())}}


def _contradicts(reader: StoreReader, kept: tuple[int, str], partition: int) -> bool:
    from detent.errors import DetentError  # noqa: PLC0415
    from detent.owner.wiring import check_kept_head  # noqa: PLC0415

    try:
        check_kept_head(reader, kept, partition)
    except DetentError:
        return True
    return False
