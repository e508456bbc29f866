"""`detent schedules`: contracts that a server runs by their `schedule:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome

_EXAMPLES = """  detent schedules create nightly.yaml --connect https://jobs.example.org
  detent schedules list
  detent schedules pause sch_k3jd9a2f
  detent schedules delete sch_k3jd9a2f
"""


@click.group(
    "schedules",
    help=teaching(
        "Have a server run contracts by their `schedule:`. --connect or DETENT_URL names the server, DETENT_KEY holds the key."
        " `detent run FILE --watch` follows a schedule without a server.",
        _EXAMPLES,
    ),
)
def command() -> None:
    """Have a server run contracts on schedules."""


@command.command(
    "list",
    help=teaching(
        "List the schedules of the workspace, with their next, last and missed occurrences.",
        """  detent schedules list
  detent schedules list -o json
""",
    ),
)
@connectable
def list_schedules(shell: Shell) -> int:
    """List schedules."""
    found: list[Any] = []
    with _server(shell) as server:
        cursor: str | None = None
        while True:
            page = server.http.get("/v1/schedules", {"limit": 200, "cursor": cursor})
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                break

    def draw(page: Page) -> None:
        if not found:
            page.line(Cell("no schedules; `detent schedules create FILE` makes one", FAINT))
            return
        page.table(("SCHEDULE", "NAME", "STATE", "WHEN", "NEXT", "LAST", "MISSED"), [_row(one) for one in found])
        for one in found:
            if (failure := one["failure"]) is not None:
                page.line(Cell(f"{one['schedule_id']}: {failure['reason']} ({failure['code']})", BAD))

    return shell.answer({"schedules": found}, draw)


@command.command(
    "create",
    help=teaching(
        """Send a contract with its code to the server, which runs it by its `schedule:` from now on. The code is a copy: create the
schedule again after a change, and delete the old one.""",
        """  detent schedules create nightly.yaml
  detent schedules create nightly.yaml -p region=eu --force
""",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("-p", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a parameter; may be repeated.")
@click.option("--force", is_flag=True, help="Run every step in every run, without reuse.")
@connectable
def create(shell: Shell, file: str, *, assignments: tuple[str, ...], force: bool) -> int:
    """Make a schedule."""
    from detent.cli.remote_run import contract_tree  # noqa: PLC0415 - keeps `--help` fast
    from detent.remote.trees import send_tree  # noqa: PLC0415

    with _server(shell) as server:
        tree, params = contract_tree(file, assignments)
        if (left_out := tree.left_out_text()) is not None:
            shell.note(f"note: {left_out}")
        options = {"force": True} if force else {}
        asked = {"contract": send_tree(server.http, tree), "params": params, "options": options}
        made = server.http.post("/v1/schedules", asked)

    def draw(page: Page) -> None:
        page.line(Cell("created", GOOD), f" {made['schedule_id']}: {made['name']}, {made['when']}")
        page.line(f"  first run at {made['next_at']}" if made["next_at"] else "  no occurrence is left")

    return shell.answer(made, draw)


@command.command(
    "pause",
    help=teaching(
        "Pause a schedule: no run is started until it is resumed. A run that goes on is left alone.",
        "  detent schedules pause sch_k3jd9a2f\n",
    ),
)
@click.argument("schedule_id", metavar="SCHEDULE")
@connectable
def pause(shell: Shell, schedule_id: str) -> int:
    """Pause a schedule."""
    return _changed(shell, schedule_id, "pause", "paused")


@command.command(
    "resume",
    help=teaching(
        "Let a paused schedule go on from now. Occurrences during the pause are not made up for.",
        "  detent schedules resume sch_k3jd9a2f\n",
    ),
)
@click.argument("schedule_id", metavar="SCHEDULE")
@connectable
def resume(shell: Shell, schedule_id: str) -> int:
    """Resume a schedule."""
    return _changed(shell, schedule_id, "resume", "resumed")


@command.command(
    "delete",
    help=teaching(
        "Delete a schedule and erase what it was to run. Runs that it started stay.",
        "  detent schedules delete sch_k3jd9a2f\n",
    ),
)
@click.argument("schedule_id", metavar="SCHEDULE")
@connectable
def delete(shell: Shell, schedule_id: str) -> int:
    """Delete a schedule."""
    with _server(shell) as server:
        server.http.ask("DELETE", f"/v1/schedules/{_quoted(schedule_id)}")
    return shell.answer({"schedule_id": schedule_id}, lambda page: page.line(Cell("deleted", GOOD), f" {schedule_id}"))


def _changed(shell: Shell, schedule_id: str, verb: str, done: str) -> int:
    with _server(shell) as server:
        after = server.http.post(f"/v1/schedules/{_quoted(schedule_id)}/{verb}", {})

    def draw(page: Page) -> None:
        following = f"; next run at {after['next_at']}" if after["next_at"] else ""
        page.line(Cell(done, GOOD), f" {schedule_id}: {after['name']}, {after['when']}{following}")

    return shell.answer(after, draw)


def _server(shell: Shell) -> RemoteHome:
    server = shell.server()
    if server is None:
        from detent.errors import InvalidInput  # noqa: PLC0415 - keeps `--help` fast

        raise InvalidInput(
            "schedules belong to a server, and none is named",
            hint="--connect URL or DETENT_URL names one; `detent run FILE --watch` follows a schedule without a server",
        )
    return server


def _quoted(schedule_id: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - keeps `--help` fast

    return quote(schedule_id, safe="")


def _row(one: Mapping[str, Any]) -> list[Cellish]:
    last, missed = one["last"], one["missed"]
    return [
        one["schedule_id"],
        one["name"],
        Cell(one["state"], GOOD if one["state"] == "active" else WARN),
        one["when"],
        one["next_at"] or "-",
        "-" if last is None else f"{last['scheduled_for']} {last['status']}",
        "-" if missed is None else str(missed["count"]),
    ]
