"""What docs/openapi.json allows and forbids, sent to a running server: it answers only what the document says (CORE-X008)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.serve.served import ANSWER_SECONDS, Served

DESCRIBED = json.loads((Path(__file__).resolve().parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))
EXAMPLES = 50
# Turns of workers are CBOR, and signed (tests/serve/test_turns.py tries every field of them).
# A stream does not end by itself (tests/serve/test_events.py); HEAD is GET without content (tests/serve/test_about.py).
SCHEMA = (
    schemathesis.openapi.from_dict(DESCRIBED)
    .exclude(path=["/v1/events", "/v1/workers/{worker_id}/turn"])
    .exclude(method="HEAD")
)
pytestmark = pytest.mark.door("route: every one in docs/openapi.json")


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_a_route_answers_only_what_its_description_says(case: Any, served: Served) -> None:
    """CORE-X008"""
    headers = {"Authorization": f"Bearer {served.token}"}
    # Two requests with wrong credentials for each example run into the limit for those; test_about.py tries them on every route.
    # A cursor, a topic, a digest of other bytes or an offset that was made up is refused, though it has the right form. A target
    # names a function, and a payload has rules of its own.
    made_up = "cursor" in (case.query or {}) or case.operation.method == "post"
    made_up = made_up or case.path.startswith(("/v1/uploads/", "/v1/events/"))
    # So are filters that no index answers together (tests/serve/test_listing.py).
    made_up = made_up or case.path in {"/v1/jobs", "/v1/runs", "/v1/pages/list"}
    excluded = [ignored_auth, *([positive_data_acceptance] if made_up else [])]
    case.call_and_validate(
        base_url=served.told["url"], headers=headers, timeout=ANSWER_SECONDS, excluded_checks=excluded
    )
