"""Deliveries are signed as Standard Webhooks 1.0 says, and hooks follow from the records."""

from __future__ import annotations

from base64 import b64decode

from detent.access.webhooks import Hooks, event_id_of, public_text, secret_text, signed_headers
from detent.canon import SigningKey
from detent.canon.crypto import verify_signature


def test_an_hmac_signature_is_that_of_the_published_example() -> None:
    secret = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', secret)

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_an_ed25519_signature_covers_id_moment_and_body() -> None:
    key = SigningKey(bytes(range(32)))
    version, _, signature = signed_headers("evt_1", 7, b"{}", key)["webhook-signature"].partition(",")

    assert version == "v1a"
    assert verify_signature(key.public_key, b"evt_1.7.{}", b64decode(signature))
    assert not verify_signature(key.public_key, b"evt_1.8.{}", b64decode(signature))


def test_keys_and_secrets_are_written_as_receivers_expect() -> None:
    assert public_text(bytes(32)) == "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    assert secret_text(bytes(24)) == "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def test_hooks_follow_from_granted_actions_alone() -> None:
    hooks = Hooks()
    said = {"parameters": {"url": "https://a.example/x", "events": ["run.ended", "nonsense"], "signature": "ed25519"}}

    def record(action: str, hook_id: str = "wh_1", outcome: str = "OK") -> dict[str, str]:
        return {"action": action, "object_id": hook_id, "tenant_id": "team", "outcome_code": outcome}

    assert hooks.apply(record("webhook.create", outcome="FORBIDDEN"), said, at_ms=5, position=9) is None
    assert hooks.apply(record("webhook.create"), {"parameters": {"url": 1}}, at_ms=5, position=9) is None
    made = hooks.apply(record("webhook.create"), said, at_ms=5, position=9)

    assert made is not None
    assert (made.events, made.from_position, made.workspace) == (("run.ended",), 10, "team")
    assert [hook.hook_id for hook in hooks.wanting("team", "run.ended")] == ["wh_1"]
    assert list(hooks.wanting("team", "job.ended")) == list(hooks.wanting("other", "run.ended")) == []
    assert hooks.hook("other", "wh_1") is None

    hooks.apply(record("webhook.disabled"), {"reason": "410"}, at_ms=6, position=11)
    assert hooks.of("team")[0].disabled == "410"
    assert list(hooks.wanting("team", "run.ended")) == []

    hooks.apply(record("webhook.delete"), {}, at_ms=7, position=12)
    assert hooks.of("team") == []
    assert len(hooks) == 0


def test_an_event_has_one_id_for_each_hook() -> None:
    assert event_id_of("wh_1", 0, 5) == event_id_of("wh_1", 0, 5)
    assert len({event_id_of(hook, part, place) for hook in ("a", "b") for part in (0, 1) for place in (5, 6)}) == 8
