"""`detent show`: one run or one job, with its records as a timeline."""

from __future__ import annotations

import click

from detent.cli.shell import Shell, connectable, teaching


@click.command(
    "show",
    help=teaching(
        "Show a run: its steps with their states, results and files. Or show a job: what it ran, its arguments, its result,"
        " where it ran and what it used. Both include every record in order, with its cause. Digests lead to content, or"
        " tell that it was erased. A prefix of an id is enough. The name of a workflow or of a step stands for the newest"
        " run that has it.",
        """  detent show RUN
  detent show prices              the newest run of that name
  detent show JOB -o json
  detent show --job NAME          when a run has the same name
  detent show JOB.3               one element of a job that is many calls of a map
  detent show JOB --raw           every field of its signed records, and its signed manifest
  detent show RUN --snapshot      the progress of a run of `detent map`, and what it waits for
""",
    ),
)
@click.argument("identifier", metavar="ID")
@click.option("--job", "what", flag_value="job", help="Treat ID as a job.")
@click.option("--run", "what", flag_value="run", help="Treat ID as a run.")
@click.option(
    "--raw", is_flag=True, help="Show every field of the signed records, under the names they are signed with."
)
@click.option("--snapshot", is_flag=True, help="For an unfinished run of `detent map`: show its diagnostics snapshot.")
@connectable
def command(shell: Shell, identifier: str, what: str | None, *, raw: bool, snapshot: bool) -> int:
    """Show one run or job."""
    from detent.owner.backend import TENANT  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.server_address import running  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.pages.show import show  # noqa: PLC0415

    if (server := shell.server()) is not None:
        with server:
            found = server.page("show", id=identifier, what=what, raw=raw, snapshot=snapshot)
            url: str | None = server.http.address.url
    else:
        home = shell.home()
        with Parts().open_snapshot(home.ledger) as reader:
            found = show(home, reader, identifier, what, raw=raw, snapshot=snapshot)
        url = running(home.path)
    code = shell.tell(found)
    kind = found.document.get("kind")
    if kind in {"job", "run"}:
        shell.say_page(url, found.document.get("tenant_id", TENANT), f"{kind}s", found.document[f"{kind}_id"])
    return code
