"""The functions of the three workflows here, on lists of orders."""

from __future__ import annotations

from typing import Any

Order = dict[str, Any]


def fetch(source: str, count: int = 3) -> list[Order]:
    """Orders from one source."""
    return [{"source": source, "number": number, "amount": 10.0 * number} for number in range(1, count + 1)]


def check(orders: list[Order]) -> list[Order]:
    """The same orders; raises an error for a broken one."""
    for order in orders:
        if order["amount"] <= 0:
            raise ValueError(f"order {order['number']} of {order['source']} has no amount")
    return orders


def enrich(orders: list[Order], tax: float = 0.19) -> list[Order]:
    """Add the amount with tax."""
    return [{**order, "total": round(order["amount"] * (1 + tax), 2)} for order in orders]


def merge(parts: list[list[Order]]) -> list[Order]:
    """All orders of all sources, by number and then by source."""
    return sorted((order for part in parts for order in part), key=lambda order: (order["number"], order["source"]))


def store(orders: list[Order], table: str = "orders") -> dict[str, Any]:
    """What a database would return after storing them."""
    return {"table": table, "rows": len(orders)}


def translate(orders: list[Order]) -> list[Order]:
    """A service that is down today."""
    raise ConnectionError(f"the translation of {len(orders)} orders is not available")
