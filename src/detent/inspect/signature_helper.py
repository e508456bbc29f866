"""A process that checks signatures: groups come in through stdin, one byte for each signature goes out through stdout.

It ends with the process that asks. It loads nothing but the signatures' own code, so that it is there soon.
"""

from __future__ import annotations

import marshal
import os
import sys

from detent.canon.crypto import verify


def main() -> None:
    """Answer until the other side has closed."""
    while size := int.from_bytes(sys.stdin.buffer.read(4), "big"):
        # All input comes from the process that started this one.
        signed = marshal.loads(sys.stdin.buffer.read(size))  # noqa: S302
        os.write(sys.stdout.fileno(), bytes(verify(*one) for one in signed))
