"""A server that two workspaces share: `demo`, which has jobs and runs, and `other`, which has none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.access.scopes import SCOPES
from tests.homes import Played
from tests.serve.served import ANSWER_SECONDS, Served, play, serving

OWN, OTHER = "demo", "other"
OTHER_SCOPES = sorted(SCOPES - {"server:admin", "server:audit"})
"""Every scope that stays within a workspace."""


def detent(played: Played, *words: str) -> Any:
    """A command on a home, in a process of its own; gives its JSON."""
    line = [sys.executable, "-m", "detent", *words, "--home", str(played.home.path), "-o", "json"]
    ended = subprocess.run(
        line,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
        env={**os.environ, **played.environment},
    )
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


@dataclass(slots=True)
class Shared:
    """The server with the credentials of its callers."""

    served: Served
    played: Played
    keys: dict[str, str] = field(default_factory=dict)
    """Secrets by what the key is for: a role in `demo`, `other` (server admin there), `revoked`, `expired`."""

    def make(self, name: str, **body: Any) -> str:
        """Make a key in `demo` over HTTP; gives its secret."""
        reply = self.served.ask(
            "POST",
            "/v1/keys",
            body=json.dumps({"name": name, **body}).encode(),
            headers={"Detent-Workspace": body.pop("workspace", OWN)},
        )
        assert reply.status == 201, reply.body
        return str(reply.json["secret"])


@contextmanager
def sharing(directory: Path) -> Iterator[Shared]:
    """A server that is shared, with keys for every kind of caller."""
    played = play(directory)
    with serving(played) as served:
        shared = Shared(served, played)
        for workspace in (OWN, OTHER):
            body = json.dumps({"workspace": workspace}).encode()
            assert served.ask("POST", "/v1/workspaces", body=body).status == 201
        shared.keys["expired"] = detent(
            played, "keys", "create", "late", "--role", "server_admin", "--expires", "1s", "--workspace", OWN
        )["secret"]
        expires = time.monotonic() + 1.5
        for role in ("viewer", "submitter", "operator", "auditor", "admin", "server_admin"):
            shared.keys[role] = shared.make(role, role=role)
        shared.keys["metrics"] = shared.make("metrics", scopes=["metrics:read"])
        reply = served.ask(
            "POST",
            "/v1/keys",
            body=json.dumps({"name": "other", "scopes": OTHER_SCOPES}).encode(),
            headers={"Detent-Workspace": OTHER},
        )
        assert reply.status == 201, reply.body
        shared.keys["other"] = reply.json["secret"]
        shared.keys["revoked"] = shared.make("revoked", role="server_admin")
        revoked = shared.keys["revoked"].split("_")[1]
        gone = served.ask("DELETE", f"/v1/keys/{revoked}", headers={"Detent-Workspace": OWN})
        assert gone.json["state"] == "revoked"
        time.sleep(max(0.0, expires - time.monotonic()))
        yield shared
