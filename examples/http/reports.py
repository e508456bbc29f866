"""Work of the examples beside this file: the server runs it (`detent serve --project DIRECTORY-OF-THIS-FILE`)."""

import calendar


def build(month: str) -> dict[str, object]:
    """A report about a month, such as 2026-11."""
    year, number = map(int, month.split("-"))
    _, days = calendar.monthrange(year, number)
    print(f"building {month}")
    return {"month": month, "days": days}
