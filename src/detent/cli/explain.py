"""`detent explain`: why a job waits, ran where it ran, was tried again, refused or dropped; why a step ran or was reused."""

from __future__ import annotations

import click

from detent.cli.shell import Shell, connectable, teaching


@click.command(
    "explain",
    help=teaching(
        "Explain why a job waited, ran, was reused or failed: what it waits for now and which jobs go first, where it was"
        " placed and why there, and why it was retried, refused, dropped or stopped. For a run, or one step of it, explain"
        " for each step whether it ran or was reused and why, what it waits for, or what blocks it. Everything is read from"
        " the ledger, so the answer is the same a year later. A prefix of an id is enough. The name of a workflow stands"
        " for its newest run, and the name of a step for that step in a recent run.",
        """  detent explain JOB
  detent explain RUN
  detent explain RUN STEP -o json
  detent explain JOB --replicas
""",
    ),
)
@click.argument("identifier", metavar="ID")
@click.argument("step", metavar="[STEP]", required=False)
@click.option(
    "--replicas",
    is_flag=True,
    help="Replay the job's scheduling decisions, and list every replica with the filter that removed it.",
)
@connectable
def command(shell: Shell, identifier: str, step: str | None, *, replicas: bool) -> int:
    """Explain one job, run or step."""
    from detent.owner.wiring import Parts  # noqa: PLC0415 - keeps `--help` fast
    from detent.pages.explain import explain  # noqa: PLC0415

    if (server := shell.server()) is not None:
        if replicas:
            raise click.UsageError(
                "--replicas replays decisions and needs the home itself: use it on the server's machine"
            )
        with server:
            return shell.tell(server.page("explain", id=identifier, step=step))
    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        return shell.tell(explain(home, reader, identifier, step, again=replicas))
