"""Philox4x32-10, the counter-based generator of Salmon et al. (Random123).

A block of four 32-bit words is a pure function of a 128-bit counter and a 64-bit key, so any place in a stream can be
reached at once and the whole state is one integer. The seed is the key: word 0 holds its low half. The counter starts at
zero and its word 0 runs fastest. The kernel draws nothing; this serves test schedules and reference engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.canon.numbers import check_uint64
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken

PRNG_FAMILY: Final = "Philox4x32-10"

_MULTIPLIER_0: Final = 0xD2511F53
_MULTIPLIER_1: Final = 0xCD9E8D57
_WEYL_0: Final = 0x9E3779B9
_WEYL_1: Final = 0xBB67AE85
_MASK_32: Final = 0xFFFFFFFF
_ROUNDS: Final = 10
_BLOCK_WORDS: Final = 4
_BLOCKS: Final = 2**128


def philox4x32_10(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """The block of four words for a counter of four words and a key of two, all of 32 bits."""
    c0, c1, c2, c3 = _words("counter", counter, _BLOCK_WORDS)
    k0, k1 = _words("key", key, 2)
    for _ in range(_ROUNDS):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            product_1 >> 32 ^ c1 ^ k0,
            product_1 & _MASK_32,
            product_0 >> 32 ^ c3 ^ k1,
            product_0 & _MASK_32,
        )
        k0 = k0 + _WEYL_0 & _MASK_32
        k1 = k1 + _WEYL_1 & _MASK_32
    return c0, c1, c2, c3


def seed_to_key(seed: int) -> tuple[int, int]:
    """The key words of a 64-bit seed, low half first."""
    check_uint64("seed", seed)
    return seed & _MASK_32, seed >> 32


class Philox:
    """The stream of words that a seed gives. ``position`` counts words and is the whole state."""

    __slots__ = ("_block", "_block_index", "_key", "position")

    def __init__(self, seed: int, position: int = 0) -> None:
        self._key = seed_to_key(seed)
        if type(position) is not int or position < 0:
            raise InvalidInput(f"position must be a count of words, got {show(position)}")
        self.position = position
        self._block_index = -1
        self._block = (0, 0, 0, 0)

    def uint32(self) -> int:
        """The next word. The end of the stream, after 2**130 words, is an abort, not a new beginning."""
        index, word = divmod(self.position, _BLOCK_WORDS)
        if index != self._block_index:
            if index >= _BLOCKS:
                raise InvariantBroken("the Philox counter is used up")
            counter = tuple(index >> shift & _MASK_32 for shift in (0, 32, 64, 96))
            self._block = philox4x32_10(counter, self._key)
            self._block_index = index
        self.position += 1
        return self._block[word]

    def uint64(self) -> int:
        """The next two words, the first one as the low half."""
        return self.uint32() | self.uint32() << 32

    def below(self, bound: int) -> int:
        """A number from 0 to ``bound - 1``, each equally likely: what would favour the small ones is drawn again."""
        if type(bound) is not int or not 1 <= bound <= 2**64:
            raise InvalidInput(f"bound must be an integer from 1 to 2**64, got {show(bound)}")
        fair = 2**64 - 2**64 % bound
        while True:
            drawn = self.uint64()
            if drawn < fair:
                return drawn % bound


def _words(name: str, words: Sequence[int], count: int) -> Sequence[int]:
    if len(words) != count:
        raise InvalidInput(f"{name} has {count} words, got {len(words)}")
    for word in words:
        if type(word) is not int or not 0 <= word <= _MASK_32:
            raise InvalidInput(f"{name} is made of 32-bit words, got {show(word)}")
    return words
