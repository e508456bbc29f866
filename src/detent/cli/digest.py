"""Digests as people type them."""

from __future__ import annotations

import re

from detent.canon import parse_digest

_BARE = re.compile(r"[0-9a-fA-F]{64}")


def parse_root(text: str) -> bytes:
    """The bytes of a digest, written with or without its ``sha256:``; `InvalidInput` for anything else."""
    text = text.strip()
    return bytes.fromhex(text) if _BARE.fullmatch(text) else parse_digest(text)
