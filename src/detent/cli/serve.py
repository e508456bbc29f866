"""`detent serve`: the HTTP server of a home."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from detent.cli.shell import JSON, Shell, teaching, with_shell
from detent.errors import EXIT_INTERRUPTED, RequestRefused

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.serve.listening import Listening
    from detent.serve.server import Beside, Started

PORT = 7733
QUEUE_ADVISED = 10_000
"""Jobs of a class that a queue behind HTTP should hold."""
NEEDED = ("uvicorn", "httptools")


@click.command(
    "serve",
    help=teaching(
        """Serve this home over HTTP, for programs and people on this machine. Programs send a key (`detent keys create`), or the
token in the file that it prints, which only you can read. A browser logs in with the link that it prints. The link works once, within
ten minutes; --login prints a new one for the running server.

Jobs run in worker processes that the server starts. On Ctrl-C or SIGTERM the server answers open requests and lets running
jobs finish before it stops.

If a server on another machine owns the ledger, which is then in PostgreSQL, this one stands by: it passes every connection on to
that server, and takes over within seconds when that one ends or falls silent.

It listens on this machine only. An address that others can reach needs TLS, a proxy that terminates it, or --insecure-http.

With -o json, the first line on standard output says where it listens.""",
        """  detent serve
  detent serve --open
  detent serve --login
  detent serve --port 0 -o json
  detent serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key --allow-host jobs.example.org:7733
  curl -H "Authorization: Bearer $(cat .detent/serve/token)" http://127.0.0.1:7733/v1/jobs
""",
    ),
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@click.option("--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="The certificate chain, as PEM.")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its private key, as PEM.")
@click.option(
    "--behind-proxy",
    metavar="NETWORK",
    help="Trust forwarded headers of proxies in this network, such as 10.0.0.0/8; they terminate TLS.",
)
@click.option(
    "--trust-proxy-header",
    "proxy_header",
    metavar="NAME",
    help="Take the user's name from this header of the proxy; the proxy must remove it from what callers send.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the login link in a browser.")
@click.option("--login", "login_only", is_flag=True, help="Print a login link for the running server, and exit.")
@click.option("--insecure-http", is_flag=True, help="Listen beyond this machine without TLS.")
@click.option("--allow-host", "names", metavar="HOST[:PORT]", multiple=True, help="Answer requests for this host, too.")
@click.option("--public-url", metavar="URL", help="How clients reach the server: the base of URLs that it signs.")
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="How other servers of the ledger reach this one.  [default: where it listens]",
)
@click.option(
    "--link-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where another server of the ledger connects to this one, if they share its partitions.  [default: any free port]",
)
@click.option(
    "--link-advertise",
    metavar="HOST[:PORT]",
    help="How other servers reach --link-port.  [default: the host of --advertise, and that port]",
)
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(0, 1024),
    help="Number of workers that the server starts; 0 for none.  [default: one per core]",
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where to find functions of jobs that name no directory.  [default: this directory]",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long requests and jobs may take to finish when the server stops.",
)
@click.option("--access-log", metavar="FILE", help="Write a JSON line for each request; - is standard error.")
@with_shell
def command(  # noqa: PLR0913 - one for each option
    shell: Shell,
    *,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: str | None,
    proxy_header: str | None,
    open_browser: bool,
    login_only: bool,
    insecure_http: bool,
    names: tuple[str, ...],
    public_url: str | None,
    advertise: str | None,
    link_port: int,
    link_advertise: str | None,
    workers: int | None,
    project: Path | None,
    drain_timeout: float,
    access_log: str | None,
) -> int:
    """Serve a home."""
    if login_only:
        return _login(shell)
    insist_on_extra()
    from detent.runs.runtime import home_at, worker_count  # noqa: PLC0415 - keeps `--help` fast
    from detent.serve.listening import Listening, insist_on_protection  # noqa: PLC0415 - nothing else loads it
    from detent.serve.server import Beside  # noqa: PLC0415

    listening = Listening(
        *(host, port, tls_cert, tls_key, behind_proxy, insecure_http),
        names=names,
        drain_seconds=drain_timeout,
        public_url=public_url,
        proxy_header=proxy_header,
        advertise=advertise,
        link_port=link_port,
        link_advertise=link_advertise,
    )
    beside = Beside(worker_count(workers, least=0), project)
    insist_on_protection(listening)
    home_at(shell.home_option)  # A new one where there is none, as `detent run` makes it.
    home = shell.home(writes=True)
    log = _log(access_log)
    try:
        return serve_home(shell, home, listening, beside, open_browser=open_browser, log=log)
    finally:
        if log is not None and log is not sys.stderr:
            log.close()


def serve_home(
    shell: Shell, home: Home, listening: Listening, beside: Beside, *, open_browser: bool, log: TextIO | None = None
) -> int:
    """Serve a home until a signal ends it; gives the exit code."""
    from detent.serve.server import run  # noqa: PLC0415 - nothing else loads it

    started = partial(_say, shell, home.path, insecure_http=listening.insecure_http, open_browser=open_browser)
    ended_by = run(home, listening, started=started, log=log, beside=beside, note=shell.note)
    shell.note("stopped")
    return EXIT_INTERRUPTED if ended_by == signal.SIGINT else 0


def _login(shell: Shell) -> int:
    """Print another login link."""
    found = login_link(shell.home(writes=True).path)
    return shell.answer({"login": found}, lambda page: page.line(found))


def login_link(home: Path) -> str:
    """Another login link for the server that runs on a home."""
    from detent.owner.server_address import running  # noqa: PLC0415
    from detent.owner.ticks import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from detent.serve.login import link, make_login  # noqa: PLC0415

    address = running(home)
    if address is None:
        raise RequestRefused(f"no server runs on {home}", code="NOT_READY", hint="start one: detent serve")
    return link(address, make_login(home, now_ms=SystemClock().wall_ms()))


def open_link(shell: Shell, link: str) -> None:
    """Open a login link in the user's browser."""
    import webbrowser  # noqa: PLC0415 - keeps `--help` fast

    if not webbrowser.open(link):
        shell.note("no browser could be opened; open the login link yourself")


def _say(shell: Shell, home: Path, told: Started, *, insecure_http: bool, open_browser: bool) -> None:
    """Say where the server is. The link goes to a terminal, or to a file that only the user can read: never into a log."""
    from detent.owner.names import DIRECTORY  # noqa: PLC0415 - keeps `--help` fast
    from detent.serve.login import LINK_FILE  # noqa: PLC0415
    from detent.store.files import replace_no_follow  # noqa: PLC0415

    shell.ending.answered = True
    if told.queue_capacity < QUEUE_ADVISED:
        shell.note(
            f"note: the queue holds {told.queue_capacity:,} jobs of a class; for many clients set [queue] capacity_per_class = 10000"
            f" and capacity_total = 100000 in {home / 'config.toml'}"
        )
    seen = shell.format != JSON and sys.stdout.isatty()
    login_file = home / DIRECTORY / LINK_FILE
    if not seen:
        replace_no_follow(login_file, f"{told.login}\n".encode())
    if shell.format == JSON:
        document = {
            "url": told.url,
            "token_file": str(told.token_file),
            "login_file": str(login_file),
            "home": str(home),
            "owner": told.owner,
            "reads_only": told.reads_only,
        }
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        login = told.login if seen else f"the link in {login_file}"
        sys.stdout.write(f"serving  {home}\nurl      {told.url}\ntoken    {told.token_file}\nlogin    {login}\n")
        if told.owner != "here":
            says = "this one only shows the home" if told.reads_only else "this one takes over when it ends"
            sys.stdout.write(f"owner    another process; {says}\n")
    if insecure_http:
        shell.note("warning: tokens and data cross the network in the clear (--insecure-http)")
    sys.stdout.flush()
    if open_browser:
        open_link(shell, told.login)


def _log(named: str | None) -> TextIO | None:
    if named is None or named == "-":
        return sys.stderr if named else None
    return Path(named).open("a", encoding="utf-8")


def insist_on_extra() -> None:
    """Refuse to serve without the packages for it."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise RequestRefused(
            f"`detent serve` needs {', '.join(missing)}, which is not installed",
            code="EXTRA_MISSING",
            hint="pip install 'detent[serve]'",
        )
