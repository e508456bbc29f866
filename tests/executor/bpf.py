"""A reader of classic BPF: what a filter answers to a call, worked out here instead of by a kernel.

It lets the tests ask the filter of a machine they do not run on, about calls that are dangerous to try.
"""

from __future__ import annotations

import struct


def answer(code: bytes, *, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """What the program returns for one call."""
    padded = tuple(value % (1 << 64) for value in arguments) + (0,) * (6 - len(arguments))
    data = struct.pack("=iIQ6Q", number, arch, 0, *padded)
    steps = [struct.unpack_from("=HBBI", code, place) for place in range(0, len(code), 8)]
    place = value = 0
    while True:
        operation, if_true, if_false, operand = steps[place]
        place += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif operation == 0x54:
            value &= operand
        else:
            held = {0x15: value == operand, 0x25: value > operand, 0x35: value >= operand, 0x45: value & operand}[
                operation
            ]
            place += if_true if held else if_false
