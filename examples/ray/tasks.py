"""Work for hosts on a Ray cluster. Ray sees none of it: a host there takes these calls from the server like any worker."""

import os


def squares(first: int, count: int) -> list[int]:
    return [number * number for number in range(first, first + count)]


def total(parts: list[list[int]]) -> dict[str, object]:
    return {"sum": sum(sum(part) for part in parts), "where": os.environ.get("EXAMPLE_WHERE", "not on Ray")}
