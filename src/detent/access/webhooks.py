"""Webhooks: which events a workspace is told of, and how a delivery is signed (Standard Webhooks 1.0).

A signature covers the event's id, the moment of the delivery and the body, so a receiver can refuse what was altered, replayed late or
sent by another. ``v1a`` is an Ed25519 signature with the workspace's own webhook key, whose public half a receiver keeps (``whpk_...``);
``v1`` is an HMAC with a secret that both sides have (``whsec_...``), for receivers that know no other.

Hooks are a fold of `operated` records, as keys are (`state`): a granted ``webhook.create`` makes one, ``webhook.delete`` and
``webhook.disabled`` end it.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from detent.access.state import OK
from detent.canon import SigningKey

EVENTS: Final = ("job.ended", "run.ended", "worker.lost", "worker.mismatch", "queue.full", "verify.failed")
"""What a hook can ask for: the end of a job that was submitted alone, the end of a run, and what a server notices (`ALERTS`)."""
ALERTS: Final = frozenset({"worker.lost", "worker.mismatch", "queue.full", "verify.failed"})
"""Actions that a server records in its own name, each an event of the same name."""
HOOKS_MAX: Final = 50
"""Hooks of one workspace."""
FAILURES_MAX: Final = 50
"""Deliveries in a row that may fail before a hook is switched off."""
SECRET_BYTES: Final = 32
ED25519: Final = "ed25519"
HMAC: Final = "hmac"
SIGNATURES: Final = (ED25519, HMAC)
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how secrets begin
_PUBLIC_PREFIX: Final = "whpk_"


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a workspace."""

    hook_id: str
    workspace: str
    url: str
    events: tuple[str, ...]
    signature: str
    """How its deliveries are signed: one of `SIGNATURES`."""
    created_ms: int
    from_position: int
    """The first position of the ledger whose events it is told of: behind its own record."""
    disabled: str | None = None
    """Why it was switched off; None while it is on."""


class Hooks:
    """Every webhook that the records say there is. Changed by one thread; others may look meanwhile."""

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def of(self, workspace: str) -> list[Hook]:
        """The hooks of a workspace, oldest first."""
        return [hook for hook in self._hooks.values() if hook.workspace == workspace]

    def hook(self, workspace: str, hook_id: str) -> Hook | None:
        """One hook of a workspace."""
        hook = self._hooks.get(hook_id)
        return hook if hook is not None and hook.workspace == workspace else None

    def wanting(self, workspace: str, event: str) -> Iterator[Hook]:
        """The hooks that are on and want an event."""
        return (hook for hook in self.of(workspace) if hook.disabled is None and event in hook.events)

    def workspaces(self) -> list[str]:
        """The workspaces that have hooks."""
        return list(dict.fromkeys(hook.workspace for hook in self._hooks.values()))

    def ids(self) -> frozenset[str]:
        """The names of all hooks."""
        return frozenset(self._hooks)

    def __len__(self) -> int:
        return len(self._hooks)

    def apply(
        self, record: Mapping[str, Any], evidence: Mapping[str, Any], *, at_ms: int, position: int
    ) -> Hook | None:
        """Take in an `operated` record with its evidence; the hook that it made, changed or ended."""
        if record.get("outcome_code") != OK:
            return None
        said = evidence.get("parameters")
        parameters = said if isinstance(said, Mapping) else {}
        match record.get("action"):
            case "webhook.create":
                return self._created(record, parameters, at_ms, position)
            case "webhook.delete":
                return self._ended(record["object_id"])
            case "webhook.disabled":
                return self._disabled(record, evidence)
        return None

    def _created(self, record: Mapping[str, Any], said: Mapping[str, Any], at_ms: int, position: int) -> Hook | None:
        url, events, signature = said.get("url"), said.get("events"), said.get("signature")
        if not isinstance(url, str) or not isinstance(events, list) or signature not in SIGNATURES:
            return None
        if record["object_id"] in self._hooks:
            return None
        wanted = tuple(sorted({one for one in events if one in EVENTS}))
        hook = Hook(
            record["object_id"], record["tenant_id"], url, wanted, str(signature), at_ms, from_position=position + 1
        )
        return self._put(hook)

    def _disabled(self, record: Mapping[str, Any], evidence: Mapping[str, Any]) -> Hook | None:
        hook = self._hooks.get(record["object_id"])
        if hook is None:
            return None
        return self._put(replace(hook, disabled=str(evidence.get("reason") or "switched off")))

    def _put(self, hook: Hook) -> Hook:
        self._hooks = {
            **self._hooks,
            hook.hook_id: hook,
        }  # Never changed in place: another thread may be looking at it.
        return hook

    def _ended(self, hook_id: str) -> Hook | None:
        ended = self._hooks.get(hook_id)
        self._hooks = {known: hook for known, hook in self._hooks.items() if known != hook_id}
        return ended


def signed_headers(event_id: str, at_seconds: int, body: bytes, signer: SigningKey | bytes) -> dict[str, str]:
    """The headers of a delivery: its id, its moment, and the signature over both and the body.

    ``signer`` is the workspace's webhook key, or the bytes of a shared secret.
    """
    message = f"{event_id}.{at_seconds}.".encode() + body
    if isinstance(signer, bytes):
        signature = f"v1,{b64encode(hmac.digest(signer, message, 'sha256')).decode()}"
    else:
        signature = f"v1a,{b64encode(signer.sign(message)).decode()}"
    return {"webhook-id": event_id, "webhook-timestamp": str(at_seconds), "webhook-signature": signature}


def public_text(public_key: bytes) -> str:
    """A public webhook key as receivers write it."""
    return _PUBLIC_PREFIX + b64encode(public_key).decode()


def secret_text(secret: bytes) -> str:
    """A shared secret as receivers write it."""
    return _SECRET_PREFIX + b64encode(secret).decode()


def event_id_of(hook_id: str, partition: int, position: int) -> str:
    """The id of an event for a hook: the same for every delivery of it, so that a receiver can tell repeats."""
    return f"evt_{sha256(f'{hook_id}:{partition}:{position}'.encode()).hexdigest()[:32]}"
