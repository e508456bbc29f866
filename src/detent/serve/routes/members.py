"""Members of a workspace and their roles; workspaces, their plans and quotas."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from pydantic import Field

from detent.access.changes import (
    ADMIN,
    QUOTA_MAX,
    WORKSPACE_PATTERN,
    change_workspace,
    create_workspace,
    remove_member,
    set_member,
)
from detent.access.cursor import read_cursor, write_cursor
from detent.access.scopes import ROLES
from detent.access.state import Workspace
from detent.errors import InvalidInput
from detent.jobs.payload import ARTIFACTS_MAX, MEMORY_MB_MAX, OUTPUT_KB_MAX, TIME_MS_MAX
from detent.owner.names import put_names
from detent.serve.audit import recorded
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Limit, Name, Role
from detent.serve.table import Route
from detent.serve.times import written_ms

_COMMITTING: Final = ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN", "HOME_INVALID")
Number = Annotated[int, Field(ge=1, le=QUOTA_MAX), WHOLE]
Milliseconds = Annotated[int, Field(ge=1, le=TIME_MS_MAX), WHOLE]


class PlanShape(Shape):
    """What the jobs of a workspace may ask for at most; null: as much as a payload can say."""

    timeout_ms: Milliseconds | None = None
    cpu_ms: Milliseconds | None = None
    memory_mb: Annotated[int, Field(ge=1, le=MEMORY_MB_MAX), WHOLE] | None = None
    max_output_kb: Annotated[int, Field(ge=1, le=OUTPUT_KB_MAX), WHOLE] | None = None
    max_artifacts: Annotated[int, Field(ge=1, le=ARTIFACTS_MAX), WHOLE] | None = None
    network_access: bool = False


class QuotaShape(Shape):
    """Numbers of a workspace's own; null: as the settings say."""

    stored_bytes: Number | None = None
    upload_bytes_per_day: Number | None = None
    uploads_at_once: Number | None = None
    reads_per_second: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    writes_per_second: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    streams: Annotated[int, Field(ge=1, le=1_000), WHOLE] | None = None


class Member(Shape):
    """A principal with a role in this workspace."""

    principal: str
    name: str | None
    role: str
    scopes: list[str]


class MemberPage(Shape):
    """Members, by principal."""

    items: list[Member]
    next: str | None


class PageQuery(Shape):
    """Which page."""

    limit: Limit = LIMIT
    cursor: Cursor | None = None


class MemberBody(Shape):
    """The role to give."""

    role: Role
    name: Name | None = None
    """What the principal is called. It lies beside the ledger and can be forgotten; null leaves it as it is."""


class WorkspaceShown(Shape):
    """A workspace."""

    workspace: str
    name: str | None
    created_at: str | None
    plan: PlanShape | None
    """Null: as the settings say."""
    quotas: QuotaShape | None
    """Null: as the settings say."""


class WorkspacePage(Shape):
    """Workspaces, by name."""

    items: list[WorkspaceShown]
    next: str | None


class WorkspaceBody(Shape):
    """The workspace to make."""

    workspace: Annotated[str, Field(pattern=WORKSPACE_PATTERN)]
    name: Name | None = None
    plan: PlanShape | None = None
    quotas: QuotaShape | None = None


class WorkspaceChange(Shape):
    """Its new plan and quotas, whole: what is null is as the settings say."""

    name: Name | None = None
    plan: PlanShape | None = None
    quotas: QuotaShape | None = None


async def _members(call: Call) -> Answer:
    query: PageQuery = call.query
    members = call.serving.access.state.members(call.workspace)
    page, following = _page(query, "/v1/members", sorted(members))
    return Answer(MemberPage(items=[_member(call, one) for one in page], next=following))


async def _read_member(call: Call) -> Answer:
    return Answer(_member(call, call.path["principal"]))


async def _set_member(call: Call) -> Answer:
    body: MemberBody = call.body
    access, principal = call.serving.access, call.principal
    assert principal is not None
    async with access.changing:
        change = set_member(access.state, principal, call.path["principal"], body.role)
        before = access.state.role(call.workspace, change.object_id)
        if body.name is not None:
            await asyncio.to_thread(put_names, call.serving.home.path, {change.object_id: body.name})
        await access.commit(call.serving.hub, recorded(call, change, before=before))
    return Answer(_member(call, change.object_id))


async def _remove_member(call: Call) -> Answer:
    access, principal = call.serving.access, call.principal
    assert principal is not None
    async with access.changing:
        change = remove_member(access.state, principal, call.path["principal"])
        before = access.state.role(call.workspace, change.object_id)
        await access.commit(call.serving.hub, recorded(call, change, before=before))
    if not access.state.workspaces_of(change.object_id):
        await asyncio.to_thread(put_names, call.serving.home.path, {change.object_id: None})
    return Answer(None, 204)


def _member(call: Call, principal_id: str) -> Member:
    access = call.serving.access
    role = access.state.role(call.workspace, principal_id)
    if role is None:
        raise InvalidInput(
            "there is no such member in this workspace", code="NOT_FOUND", hint="GET /v1/members lists the members"
        )
    return Member(principal=principal_id, name=access.names().get(principal_id), role=role, scopes=sorted(ROLES[role]))


async def _workspaces(call: Call) -> Answer:
    query: PageQuery = call.query
    known = {one.workspace_id: one for one in call.serving.access.state.workspaces()}
    page, following = _page(query, "/v1/workspaces", sorted(known))
    return Answer(WorkspacePage(items=[_workspace(call, known[one]) for one in page], next=following))


async def _read_workspace(call: Call) -> Answer:
    found = call.serving.access.state.workspace(call.path["workspace"])
    if found is None:
        raise InvalidInput("there is no such workspace", code="NOT_FOUND", hint="GET /v1/workspaces lists them")
    return Answer(_workspace(call, found))


async def _create_workspace(call: Call) -> Answer:
    body: WorkspaceBody = call.body
    access = call.serving.access
    async with access.changing:
        change = create_workspace(access.state, body.workspace, _said(body.plan), _said(body.quotas))
        await _name(call, change.object_id, body.name)
        await access.commit(call.serving.hub, recorded(call, change))
    found = access.state.workspace(change.object_id)
    assert found is not None
    return Answer(_workspace(call, found), 201, headers={"location": f"/v1/workspaces/{found.workspace_id}"})


async def _change_workspace(call: Call) -> Answer:
    body: WorkspaceChange = call.body
    access = call.serving.access
    async with access.changing:
        change = change_workspace(access.state, call.path["workspace"], _said(body.plan), _said(body.quotas))
        known = access.state.workspace(change.object_id)
        assert known is not None
        before: dict[str, Any] = {"plan": known.plan, "quotas": known.quotas}
        await _name(call, change.object_id, body.name)
        await access.commit(call.serving.hub, recorded(call, change, before=before))
    found = access.state.workspace(change.object_id)
    assert found is not None
    return Answer(_workspace(call, found))


async def _name(call: Call, workspace_id: str, name: str | None) -> None:
    if name is not None:
        await asyncio.to_thread(put_names, call.serving.home.path, {f"w:{workspace_id}": name})


def _workspace(call: Call, found: Workspace) -> WorkspaceShown:
    return WorkspaceShown(
        workspace=found.workspace_id,
        name=call.serving.access.names().get(f"w:{found.workspace_id}"),
        created_at=written_ms(found.created_ms or None),
        plan=None if found.plan is None else PlanShape.model_validate(found.plan),
        quotas=None if found.quotas is None else QuotaShape.model_validate(found.quotas),
    )


def _said(shape: Shape | None) -> dict[str, Any] | None:
    """What a document says of a plan or of quotas, in the words of the settings."""
    return None if shape is None else shape.model_dump(exclude_none=True)


def _page(query: PageQuery, route: str, names: list[str]) -> tuple[list[str], str | None]:
    """A page of sorted names, and where the next begins."""
    after = "" if query.cursor is None else str(read_cursor(query.cursor, route, {}, (str,))[0])
    page = [name for name in names if name > after][: query.limit + 1]
    shown = page[: query.limit]
    return shown, write_cursor(route, {}, (shown[-1],)) if len(page) > query.limit else None


ROUTES: Final = (
    Route(
        "GET",
        "/v1/members",
        _members,
        "List the members of this workspace.",
        "members:write",
        ("HOME_INVALID",),
        {200: MemberPage},
        query=PageQuery,
        pages=True,
    ),
    Route(
        "GET",
        "/v1/members/{principal}",
        _read_member,
        "Read one member.",
        "members:write",
        ("NOT_FOUND", "HOME_INVALID"),
        {200: Member},
    ),
    Route(
        "PUT",
        "/v1/members/{principal}",
        _set_member,
        "Give a principal a role in this workspace.",
        "members:write",
        ("ACCESS_FULL", *_COMMITTING),
        {200: Member},
        body=MemberBody,
        audited=True,
        action="member.set",
    ),
    Route(
        "DELETE",
        "/v1/members/{principal}",
        _remove_member,
        "Remove a member, and revoke its keys in this workspace.",
        "members:write",
        ("NOT_FOUND", *_COMMITTING),
        {204: None},
        audited=True,
        action="member.remove",
    ),
    Route(
        "GET",
        "/v1/workspaces",
        _workspaces,
        "List the workspaces of the server.",
        ADMIN,
        ("HOME_INVALID",),
        {200: WorkspacePage},
        query=PageQuery,
        pages=True,
    ),
    Route(
        "POST",
        "/v1/workspaces",
        _create_workspace,
        "Make a workspace.",
        ADMIN,
        ("CONFLICT", "ACCESS_FULL", *_COMMITTING),
        {201: WorkspaceShown},
        body=WorkspaceBody,
        audited=True,
        action="workspace.create",
    ),
    Route(
        "GET",
        "/v1/workspaces/{workspace}",
        _read_workspace,
        "Read one workspace.",
        ADMIN,
        ("NOT_FOUND", "HOME_INVALID"),
        {200: WorkspaceShown},
    ),
    Route(
        "PATCH",
        "/v1/workspaces/{workspace}",
        _change_workspace,
        "Give a workspace another plan and other quotas.",
        ADMIN,
        ("NOT_FOUND", *_COMMITTING),
        {200: WorkspaceShown},
        body=WorkspaceChange,
        audited=True,
        action="workspace.change",
    ),
)
