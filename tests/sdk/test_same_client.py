"""The clients are one client: whatever one of them takes or has, beside a home or at a server, awaited or not, the others have, too."""

from __future__ import annotations

import inspect
from inspect import Parameter

import pytest

from detent.sdk.async_client import AsyncClient, AsyncHandle
from detent.sdk.client import Client, Handle
from detent.sdk.flow_handle import FlowHandle
from detent.sdk.platform_jobs import JobHandle
from detent.sdk.remote_client import RemoteClient
from detent.sdk.remote_flow import RemoteFlowHandle
from detent.sdk.remote_handles import RemoteHandle, RemoteJobHandle

OWN = {
    (FlowHandle, "start"),  # Begins the run, which a server has begun when its handle is made.
    (FlowHandle, "leave"),  # Of a process that drives a run itself.
    (RemoteHandle, "ended"),  # What all handles at a server stand on.
    (RemoteJobHandle, "ended"),
}


def public(kind: type) -> dict[str, object]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    return {name: inspect.getattr_static(kind, name) for name in names if (kind, name) not in OWN}


def taken(function: object) -> list[tuple[str, object, object]]:
    """The parameters of a method: their names, kinds and defaults."""
    if isinstance(function, property):
        return [("property", None, None)]
    assert callable(function)
    found = list(inspect.signature(function).parameters.values())
    return [(one.name, one.kind, one.default) for one in found]


def options(function: object) -> set[str]:
    """The names of parameters; empty for a property."""
    return {name for name, *_ in taken(function)} - {"property"}


@pytest.mark.parametrize(
    ("near", "there"),
    [
        (Client, RemoteClient),
        (Handle, RemoteHandle),
        (FlowHandle, RemoteFlowHandle),
        (JobHandle, RemoteJobHandle),
    ],
)
def test_both_sides_have_the_same_methods_with_the_same_parameters(near: type, there: type) -> None:
    assert public(near).keys() == public(there).keys()
    for name, method in public(near).items():
        other = public(there)[name]
        assert isinstance(method, property) == isinstance(other, property), name
        assert options(method) == options(other), name


def test_both_clients_are_made_with_the_same_options() -> None:
    near = {name: default for name, _, default in taken(Client.__init__) if name not in {"self", "home"}}
    there = {name: default for name, _, default in taken(RemoteClient.__init__) if name not in {"self", "url"}}
    assert near == there


def test_the_awaited_client_has_every_method_and_passes_every_option_on() -> None:
    assert public(AsyncClient).keys() - public(Client).keys() == {"ask", "wait"}
    for name, method in public(Client).items():
        assert name in public(AsyncClient), name
        other = public(AsyncClient)[name]
        assert callable(other)
        kinds = {one.kind for one in inspect.signature(other).parameters.values()}
        assert Parameter.VAR_KEYWORD in kinds or options(method) == options(other), name


@pytest.mark.parametrize("kind", [Handle, JobHandle, FlowHandle])
def test_an_awaited_handle_has_what_every_handle_has(kind: type) -> None:
    assert public(kind).keys() - public(AsyncHandle).keys() <= {"submitted", "superseded", "wait"}
