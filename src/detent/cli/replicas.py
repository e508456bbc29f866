"""`detent replicas`: which replicas are registered, and removing one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, format_option, home_option, list_by_default, teaching, with_shell
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.inspect.replicas import RegisteredReplica


@click.group(
    "replicas",
    invoke_without_command=True,
    help=teaching(
        "Show the registered replicas: pool, engine, readiness, slots, and how many jobs wait for them. While at least one is"
        " registered, only registered replicas get jobs, and the workers of `detent run` get none.",
        """  detent replicas
  detent replicas -o json
  detent replicas remove gpu-7
""",
    ),
)
@format_option
@home_option
@click.pass_context
def command(context: click.Context, home_path: Path | None, output_format: str) -> int:
    """List replicas, unless a subcommand was given."""
    return list_by_default(context, list_replicas, home_path=home_path, output_format=output_format)


@command.command(
    "list",
    help=teaching(
        "List the registered replicas.",
        """  detent replicas list
  detent replicas list -o json
""",
    ),
)
@with_shell
def list_replicas(shell: Shell) -> int:
    """List replicas."""
    from detent.inspect.replicas import HINT, registered, registered_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        replicas = registered(reader)

    def draw(page: Page) -> None:
        if not replicas:
            page.line("no replica is registered: this home's own workers run its jobs")
            return
        page.table(("REPLICA", "POOL", "ENGINE", "MODEL", "READY", "SLOTS", "WAITING"), [_row(one) for one in replicas])
        page.line()
        page.line(Cell(f"{registered_text([one.status for one in replicas])}.", WARN))
        page.line(Cell(f"To change that, {HINT}.", FAINT))

    return shell.answer([one.to_map() for one in replicas], draw)


@command.command(
    "remove",
    help=teaching(
        "Remove a replica from this home, on the ledger. Jobs that run there keep their leases. When the last one is gone, the"
        " home's own workers get the jobs that need no particular replica.",
        """  detent replicas remove gpu-7
""",
    ),
)
@click.argument("replica_id", metavar="REPLICA")
@with_shell
def remove_replica(shell: Shell, replica_id: str) -> int:
    """Remove a replica."""
    from detent.inspect.replicas import registered, remove  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.session import Session  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415

    home = shell.home(writes=True)
    with Session(home) as session, Parts().open_reader(home.ledger) as reader:
        gone = remove(session, reader, replica_id)
        left = len(registered(reader))

    def draw(page: Page) -> None:
        after = f"{left} left" if left else "none is left, so this home's own workers run its jobs"
        page.line(Cell("removed", GOOD), f" {replica_id} of pool {gone.status.placement.pool_id}; {after}")

    return shell.answer({"replica_id": replica_id, "replicas_left": left}, draw)


def _row(one: RegisteredReplica) -> list[Cellish]:
    status, placement = one.status, one.status.placement
    return [
        status.replica_id,
        placement.pool_id,
        placement.engine,
        status.model_id or "-",
        Cell("yes", GOOD) if status.ready else Cell("no", WARN),
        f"{placement.active_slots}/{status.max_slots}",
        str(one.waiting),
    ]
