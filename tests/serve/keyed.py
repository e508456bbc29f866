"""Keys for tests that ask as somebody in particular."""

from __future__ import annotations

import json
from typing import Any

from tests.serve.served import Reply, Served


def key(served: Served, role: str, **said: Any) -> str:
    """A new key of a role, a principal of its own; gives its secret."""
    body = json.dumps({"name": role, "role": role, **said}).encode()
    reply = served.ask("POST", "/v1/keys", body=body)
    assert reply.status == 201, reply.body
    return str(reply.json["secret"])


def post_as(served: Served, token: str, path: str, document: Any) -> Reply:
    """A request with a key."""
    return served.ask("POST", path, body=json.dumps(document).encode(), token=token)
