"""`detent dashboard`: a home in the browser, at the server that runs, or at one that is started for it."""

from __future__ import annotations

import click

from detent.cli.shell import Shell, teaching, with_shell


@click.command(
    "dashboard",
    help=teaching(
        """Open the dashboard of this home in a browser, logged in. If a server runs on the home, the link leads there, and the command ends.
If not, it starts one for this machine on a free port, and serves until Ctrl-C. If another process owns the home then, such as
`detent run`, the dashboard is read-only: it follows that process, starts no workers, and refuses whatever would change something.""",
        """  detent dashboard
  detent dashboard --home path/to/.detent
  detent dashboard --print        print the link, and open no browser
""",
    ),
)
@click.option("--print", "only_print", is_flag=True, help="Print the login link instead of opening a browser.")
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(0, 1024),
    help="Number of workers of a server that is started; 0 for one that only shows.  [default: one per core]",
)
@with_shell
def command(shell: Shell, *, only_print: bool, workers: int | None) -> int:
    """Open a home's dashboard."""
    from detent.cli.serve import insist_on_extra, login_link, open_link, serve_home  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.server_address import running  # noqa: PLC0415

    insist_on_extra()
    home = shell.home(writes=True)
    if running(home.path) is not None:
        link = login_link(home.path)
        if not only_print:
            open_link(shell, link)
        return shell.answer({"login": link}, lambda page: page.line(link))

    from detent.runs.runtime import worker_count  # noqa: PLC0415
    from detent.serve.listening import Listening  # noqa: PLC0415 - nothing else loads it
    from detent.serve.server import Beside  # noqa: PLC0415

    listening = Listening("127.0.0.1", 0)
    beside = Beside(worker_count(workers, least=0), reads_beside_owner=True)
    return serve_home(shell, home, listening, beside, open_browser=not only_print)
