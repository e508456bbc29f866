"""Random bytes drawn in blocks: each is given out once, in one process."""

from __future__ import annotations

import os
import threading

from detent.owner.backend import RANDOM_BLOCK_BYTES, RandomBlocks


def test_every_byte_is_given_out_once() -> None:
    random = RandomBlocks()
    taken: list[bytes] = []

    def take() -> None:
        taken.extend(random(16) for _ in range(2 * RANDOM_BLOCK_BYTES // 16 + 1))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {len(piece) for piece in taken} == {16}
    assert len(set(taken)) == len(taken)
    assert len(random(3 * RANDOM_BLOCK_BYTES)) == 3 * RANDOM_BLOCK_BYTES


def test_a_forked_child_draws_bytes_of_its_own() -> None:
    random = RandomBlocks()
    random(16)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, random(32))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads, "rb") as told:
        assert told.read() != random(32)
