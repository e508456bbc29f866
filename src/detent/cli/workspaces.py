"""`detent keys workspace` and `detent keys member`: who shares a server, and in which roles."""

from __future__ import annotations

import secrets
from typing import Any

import click

from detent.cli.api_keys import LOCAL, ROLE_NAMES, Operator, workspace_option
from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD


@click.group("workspace", help="Make, change and list the workspaces of a server.")
def workspace_group() -> None:
    """Workspaces."""


@workspace_group.command(
    "create",
    help=teaching(
        """Make a workspace. Workspaces cannot see one another's jobs, runs, keys and members. Its jobs have the plan that the settings
give it, unless --plan says otherwise.""",
        """  detent keys workspace create team-a
  detent keys workspace create team-b --plan network_access=true --quota stored_bytes=10737418240
""",
    ),
)
@click.argument("name")
@click.option("--plan", "plan", metavar="KEY=VALUE", multiple=True, help="What its jobs may ask for; may be repeated.")
@click.option(
    "--quota",
    "quotas",
    metavar="KEY=NUMBER",
    multiple=True,
    help="A limit of its own, such as streams=5; may be repeated.",
)
@with_shell
def create_workspace(shell: Shell, *, name: str, plan: tuple[str, ...], quotas: tuple[str, ...]) -> int:
    """Make a workspace."""
    from detent.access.changes import create_workspace as decide  # noqa: PLC0415 - keeps `--help` fast

    with Operator(shell, LOCAL) as operator:
        operator.commit(decide(operator.state, name, _plan(plan), _numbers(quotas)))
    return _answer_workspace(shell, operator, name, "made")


@workspace_group.command(
    "change",
    help=teaching(
        "Replace the plan and the quotas of a workspace; without options, those of the settings apply again.",
        """  detent keys workspace change team-a --plan network_access=true
""",
    ),
)
@click.argument("name")
@click.option("--plan", "plan", metavar="KEY=VALUE", multiple=True, help="What its jobs may ask for; may be repeated.")
@click.option(
    "--quota",
    "quotas",
    metavar="KEY=NUMBER",
    multiple=True,
    help="A limit of its own, such as streams=5; may be repeated.",
)
@with_shell
def change_workspace(shell: Shell, *, name: str, plan: tuple[str, ...], quotas: tuple[str, ...]) -> int:
    """Change a workspace."""
    from detent.access.changes import change_workspace as decide  # noqa: PLC0415 - keeps `--help` fast

    with Operator(shell, LOCAL) as operator:
        operator.commit(decide(operator.state, name, _plan(plan), _numbers(quotas)))
    return _answer_workspace(shell, operator, name, "changed")


@workspace_group.command(
    "list", help=teaching("List the workspaces of this home.", "  detent keys workspace list -o json\n")
)
@with_shell
def list_workspaces(shell: Shell) -> int:
    """List workspaces."""
    with Operator(shell, LOCAL, writes=False) as operator:
        found = [_workspace_map(operator, one.workspace_id) for one in operator.state.workspaces()]

    def draw(page: Page) -> None:
        rows = [[one["workspace"], str(one["keys"]), str(one["members"])] for one in found]
        page.table(("WORKSPACE", "KEYS", "MEMBERS"), rows)

    return shell.answer({"workspaces": found}, draw)


@click.group("member", help="Give principals roles in a workspace, take them away, and list them.")
def member_group() -> None:
    """Members."""


@member_group.command(
    "set",
    help=teaching(
        """Give a member a role, in place of the one it has. A new member is added by --name alone and gets an id, which keys for
it name (`detent keys create NAME --member ID`). The ledger holds the ids; names are kept beside it.""",
        """  detent keys member set --name ann --role operator --workspace team-a
  detent keys member set p_7abq2lwx3mnz --role viewer --workspace team-a
""",
    ),
)
@click.argument("principal", required=False)
@click.option("--role", type=click.Choice(ROLE_NAMES), required=True, help="The role.")
@click.option("--name", metavar="NAME", help="What the member is called.")
@workspace_option
@with_shell
def set_member(shell: Shell, *, principal: str | None, role: str, name: str | None, workspace: str) -> int:
    """Give a role."""
    from detent.access.changes import set_member as decide  # noqa: PLC0415 - keeps `--help` fast
    from detent.access.tokens import ID_BYTES, new_id  # noqa: PLC0415
    from detent.owner.names import put_names  # noqa: PLC0415

    if principal is None and name is None:
        raise click.UsageError("name a PRINCIPAL, or --name a new one")
    principal = principal or f"p_{new_id(secrets.token_bytes(ID_BYTES))}"
    with Operator(shell, workspace) as operator:
        change = decide(operator.state, operator.principal, principal, role)
        if name is not None:
            put_names(operator.home, {principal: name})
        operator.commit(change)
    document = {"principal": principal, "role": role, "workspace": workspace}
    return shell.answer(document, lambda page: page.line(Cell(role, GOOD), f" {principal} in workspace {workspace}"))


@member_group.command(
    "remove",
    help=teaching(
        "Remove a member from a workspace, and revoke its keys there.",
        "  detent keys member remove p_7abq2lwx3mnz --workspace team-a\n",
    ),
)
@click.argument("principal")
@workspace_option
@with_shell
def remove_member(shell: Shell, *, principal: str, workspace: str) -> int:
    """Remove a member."""
    from detent.access.changes import remove_member as decide  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.names import put_names  # noqa: PLC0415

    with Operator(shell, workspace) as operator:
        operator.commit(decide(operator.state, operator.principal, principal))
        if not operator.state.workspaces_of(principal):
            put_names(operator.home, {principal: None})
    document = {"principal": principal, "role": None, "workspace": workspace}
    return shell.answer(
        document, lambda page: page.line(Cell("removed", GOOD), f" {principal} from workspace {workspace}")
    )


@member_group.command(
    "list", help=teaching("List the members of a workspace.", "  detent keys member list --workspace team-a\n")
)
@workspace_option
@with_shell
def list_members(shell: Shell, *, workspace: str) -> int:
    """List members."""
    from detent.owner.names import read_names  # noqa: PLC0415 - keeps `--help` fast

    with Operator(shell, workspace, writes=False) as operator:
        names = read_names(operator.home)
        found = [
            {"principal": one, "name": names.get(one), "role": role}
            for one, role in sorted(operator.state.members(workspace).items())
        ]

    def draw(page: Page) -> None:
        if not found:
            page.line(Cell("no members; `detent keys member set --name NAME --role ROLE` adds one", FAINT))
            return
        page.table(
            ("PRINCIPAL", "NAME", "ROLE"),
            [[str(one["principal"]), one["name"] or "-", str(one["role"])] for one in found],
        )

    return shell.answer({"workspace": workspace, "members": found}, draw)


def _plan(said: tuple[str, ...]) -> dict[str, Any] | None:
    """A plan as options write it, read as the settings read one."""
    from detent.jobs.plans import DEFAULT, read_plans  # noqa: PLC0415 - loads Pydantic

    if not said:
        return None
    words = {"true": True, "false": False}
    plan: dict[str, Any] = {}
    for name, value in _pairs("--plan", said).items():
        plan[name] = words[value] if value in words else _number("--plan", name, value)
    read_plans({DEFAULT: plan})
    return plan


def _numbers(said: tuple[str, ...]) -> dict[str, int] | None:
    return {name: _number("--quota", name, value) for name, value in _pairs("--quota", said).items()} if said else None


def _pairs(option: str, said: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for one in said:
        name, found, value = one.partition("=")
        if not found or not name or name in pairs:
            raise click.UsageError(f"{option} is written KEY=VALUE, each key once, not {one!r:.80}")
        pairs[name] = value
    return pairs


def _number(option: str, name: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 18:
        raise click.UsageError(f"{option} {name}: {value!r:.40} is not a whole number")
    return int(value)


def _workspace_map(operator: Operator, name: str) -> dict[str, Any]:
    found = operator.state.workspace(name)
    assert found is not None
    return {
        "workspace": name,
        "plan": None if found.plan is None else dict(found.plan),
        "quotas": None if found.quotas is None else dict(found.quotas),
        "keys": sum(1 for _ in operator.state.keys(name)),
        "members": len(operator.state.members(name)),
    }


def _answer_workspace(shell: Shell, operator: Operator, name: str, done: str) -> int:
    return shell.answer(_workspace_map(operator, name), lambda page: page.line(Cell(done, GOOD), f" workspace {name}"))


GROUPS: tuple[click.Group, ...] = (workspace_group, member_group)
