"""`detent pools`: pools of workers that a server starts, and how many hosts each has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, format_option, home_option, list_by_default, server_options, teaching
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, WARN

if TYPE_CHECKING:
    from detent.jobs.pools import Pool

AUTO = "auto"


@click.group(
    "pools",
    invoke_without_command=True,
    help=teaching(
        "List the pools whose workers a server starts: those with `provision` under [pools.NAME] in its settings. Without --connect"
        " or DETENT_URL it is the server of this home.",
        """  detent pools
  detent pools -o json --connect https://jobs.example.org
  detent pools scale gpu 4
  detent pools scale gpu auto
""",
    ),
)
@format_option
@server_options
@home_option
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """List pools, unless a subcommand was given."""
    return list_by_default(context, list_pools, **options)


@command.command(
    "list",
    help=teaching(
        "List pools: how many hosts each has and is to have, and how many jobs wait for it.",
        """  detent pools list
  detent pools list -o json
""",
    ),
)
@connectable
def list_pools(shell: Shell) -> int:
    """List pools."""
    found = _listed(shell)

    def draw(page: Page) -> None:
        if not found:
            page.line(Cell("no pool has a provisioner; docs/how-to/pools.md shows how to give it one", FAINT))
            return
        page.table(("POOL", "PROVISION", "HOSTS", "WANTED", "RANGE", "BUSY", "WAITING"), [_row(one) for one in found])
        for one in found:
            if (fault := one["fault"] or one["unready"]) is not None:
                page.line(Cell(f"{one['pool']}: {fault}", BAD if one["fault"] else WARN))

    return shell.answer({"pools": found}, draw)


@command.command(
    "scale",
    help=teaching(
        "Set how many hosts a pool has, within the range of its settings. The number is recorded on the ledger and holds until it is"
        " changed; `auto` goes back to what the settings say. Hosts that are too many finish their jobs first.",
        """  detent pools scale gpu 4
  detent pools scale gpu auto
  detent pools scale gpu 0 --connect https://jobs.example.org
""",
    ),
)
@click.argument("pool", metavar="POOL")
@click.argument("hosts", metavar="HOSTS")
@connectable
def scale_pool(shell: Shell, pool: str, hosts: str) -> int:
    """Scale a pool."""
    if hosts != AUTO and not (hosts.isascii() and hosts.isdigit() and len(hosts) < 10):
        raise click.UsageError(f"{hosts!r} is neither a number of hosts nor {AUTO!r}")
    wanted = None if hosts == AUTO else int(hosts)
    server = shell.server()
    if server is None:
        _scale_here(shell, pool, wanted)
    else:
        from urllib.parse import quote  # noqa: PLC0415 - keeps `--help` fast

        with server:
            server.http.post(f"/v1/pools/{quote(pool, safe='')}/scale", {"hosts": wanted})

    def draw(page: Page) -> None:
        said = "follows its settings" if wanted is None else f"is to have {wanted} {'host' if wanted == 1 else 'hosts'}"
        page.line(Cell("scaled", GOOD), f" pool {pool} {said}")

    return shell.answer({"pool": pool, "wanted": wanted}, draw)


def _listed(shell: Shell) -> list[Any]:
    """What a server says of its pools; what settings and ledger of a home say that no server has."""
    server = shell.server()
    if server is not None:
        with server:
            return list(server.http.get("/v1/pools")["items"])
    from detent.owner.names import DIRECTORY, TOKEN_FILE  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.server_address import running  # noqa: PLC0415
    from detent.remote.address import parse_address  # noqa: PLC0415
    from detent.remote.http import Http  # noqa: PLC0415

    home = shell.home()
    url = running(home.path)
    if url is not None and url.startswith("http://"):
        token = (home.path / DIRECTORY / TOKEN_FILE).read_text("ascii").strip()
        with Http(parse_address(url, key=token), agent="detent-cli") as http:
            return list(http.get("/v1/pools")["items"])
    from detent.owner.operating import read_scales  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415

    with Parts().open_snapshot(home.ledger) as reader:
        scales = read_scales(reader)
    return [_idle(pool, scales.get(name)) for name, pool in home.settings().provisioned.items()]


def _idle(pool: Pool, scaled: int | None) -> dict[str, Any]:
    """A pool as `/v1/pools` would show it, of which no server has told anything."""
    return {
        "pool": pool.name,
        "provision": pool.provision,
        "labels": list(pool.labels),
        "cpus": pool.cpus,
        "resources": dict(pool.resources),
        "min": pool.least,
        "max": pool.most,
        "wanted": pool.hosts if scaled is None else scaled,
        "scaled": scaled is not None,
        "aim": None,
        "hosts": 0,
        "waiting": 0,
        "fault": None,
        "unready": "no server that this command could ask runs on this home",
        "workers": [],
    }


def _scale_here(shell: Shell, name: str, wanted: int | None) -> None:
    """Record the number in a home of this machine; its server hears of it."""
    from detent.access.pools import scale  # noqa: PLC0415 - keeps `--help` fast
    from detent.access.state import LOCAL  # noqa: PLC0415
    from detent.cli.api_keys import Operator  # noqa: PLC0415
    from detent.errors import InvalidInput  # noqa: PLC0415

    pool = shell.home().settings().provisioned.get(name)
    if pool is None:
        raise InvalidInput(
            f"the settings of this home name no pool {name[:100]!r} with a provisioner",
            hint="`detent pools` lists them",
        )
    if wanted is not None and (fault := pool.range_fault(wanted)) is not None:
        raise InvalidInput(fault, hint=f"min and max are under [pools.{name}] in the settings")
    with Operator(shell, LOCAL) as operator:
        operator.commit(scale(name, wanted))


def _row(one: Mapping[str, Any]) -> list[Cellish]:
    busy = sum(worker["state"] == "busy" for worker in one["workers"])
    by_queue = "by queue" if one["aim"] is None else f"{one['aim']} by queue"
    wanted = by_queue if one["wanted"] is None else f"{one['wanted']}{' (scaled)' if one['scaled'] else ''}"
    return [
        one["pool"],
        one["provision"],
        str(one["hosts"]),
        wanted,
        f"{one['min']}-{one['max']}",
        str(busy),
        str(one["waiting"]),
    ]
