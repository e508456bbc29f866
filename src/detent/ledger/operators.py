"""What operators' actions add up to, as far as a verification holds them against each other."""

from __future__ import annotations

from detent.canon.crypto import PUBLIC_KEY_BYTES


class Operators:
    """The API keys that actions have made so far, and the public keys of operators who sign their own requests."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._public_keys: dict[str, bytes] = {}
        self._ended: dict[str, bytes] = {}

    def change(self, action: str, key_id: str, parameters: object) -> str | None:
        """Take in a granted action on a key; says what cannot be. A key may well be revoked twice, by two at once."""
        if action == "key.create":
            if key_id in self._made:
                return f"key {key_id!r} was made before"
            self._made.add(key_id)
            public_key = parameters.get("public_key") if isinstance(parameters, dict) else None
            if type(public_key) is bytes and len(public_key) == PUBLIC_KEY_BYTES:
                self._public_keys[key_id] = public_key
        elif key_id not in self._made:
            return f"key {key_id!r} was never made"
        elif action == "key.revoke" and (ended := self._public_keys.pop(key_id, None)) is not None:
            self._ended[key_id] = ended
        return None

    def public_key(self, credential_id: str, *, ever: bool = False) -> bytes | None:
        """The key with which the holder of a credential signs requests; None where there is none in force.

        ``ever``: also one that was in force: keys are made and revoked in the first partition, and the order of two partitions is not
        recorded.
        """
        found = self._public_keys.get(credential_id)
        return self._ended.get(credential_id) if found is None and ever else found
