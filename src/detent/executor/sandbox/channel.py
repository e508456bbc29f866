"""Messages between the supervisor, the spawner and a jail's init: a kind, a payload, perhaps descriptors.

The sockets are SOCK_SEQPACKET, so the kernel keeps every message whole: a writer that is killed leaves no half of one
behind, and two writers cannot mix. A payload that is too long for one message is sent in pieces, each marked whether
more follow. Standard library only: this file is loaded inside the jail too.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any

PIECE_BYTES = 60_000
"""What one message carries; far below the kernel's default buffer for a socket."""
DESCRIPTORS_MAX = 16
PAYLOAD_BYTES_MAX = 128 << 20
"""What a job may be as JSON."""

# Kinds, named for who says them. The spawner's:
SPAWNED, ENDED = b"s", b"e"
# Init's:
READY, FAILED, OUT, ERR, RESULT, EVIDENCE, FILE, REPORT = b"r", b"f", b"o", b"E", b"R", b"v", b"F", b"x"
# The supervisor's:
SETTINGS, SPEC, ORDER, PAYLOAD = b"S", b"p", b"l", b"j"

_HEAD = 2


class Closed(Exception):
    """The other end is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, kind: bytes, payload: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
    """Send a payload whole, with its descriptors on the first piece. Raises Closed when the other side has closed."""
    place = 0
    while True:
        piece = payload[place : place + PIECE_BYTES]
        place += PIECE_BYTES
        more = place < len(payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            end.sendmsg([kind + (b"+" if more else b"."), piece], ancillary)
        except (BrokenPipeError, ConnectionResetError) as exc:
            raise Closed from exc
        descriptors = ()
        if not more:
            return


def send_json(end: socket.socket, kind: bytes, value: Any, descriptors: tuple[int, ...] = ()) -> None:
    """Send a value of plain types."""
    send(end, kind, json.dumps(value, separators=(",", ":")).encode(), descriptors)


def receive_piece(end: socket.socket) -> tuple[bytes, bool, bytes, list[int]]:
    """The next piece: kind, whether more of it follows, bytes, descriptors. Raises Closed at the end."""
    try:
        data, ancillary, flags, _ = end.recvmsg(
            PIECE_BYTES + _HEAD, socket.CMSG_SPACE(4 * DESCRIPTORS_MAX), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError as exc:
        raise Closed from exc
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
            descriptors.extend(numbers)
    if len(data) < _HEAD or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for number in descriptors:
            os.close(number)
        raise Closed
    return data[:1], data[1:2] == b"+", data[_HEAD:], descriptors


def receive(end: socket.socket, *, bytes_max: int) -> tuple[bytes, bytes, list[int]]:
    """The next payload whole. Raises Closed at the end, or when it is longer than ``bytes_max``."""
    pieces: list[bytes] = []
    descriptors: list[int] = []
    size = 0
    while True:
        kind, more, piece, received = receive_piece(end)
        pieces.append(piece)
        descriptors += received
        size += len(piece)
        if size > bytes_max or len(descriptors) > DESCRIPTORS_MAX:
            for number in descriptors:
                os.close(number)
            raise Closed
        if not more:
            return kind, b"".join(pieces), descriptors


def decode(data: bytes) -> Any:
    """A value as `send_json` wrote it."""
    return json.loads(data)
