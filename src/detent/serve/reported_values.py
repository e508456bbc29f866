"""Whether the values that a worker elsewhere reports are what reports promise: strict JSON, under the digests that they are named by.

Everything that reads a result trusts this: the next step, the page of a job, a client. The workers of the home encode values in our own
code; a worker on another machine is a stranger's program and may send any bytes. So its values are read once where they come in, before
its report counts, and one that is not JSON is refused like any other report that is not what it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from detent.canon import json_decode, json_digest
from detent.canon.strict_json import NotStrictJson
from detent.jobs.work import WorkReport

Read = Callable[[bytes], bytes | None]
"""The bytes of content, or None where it is gone."""


def value_fault(report: WorkReport, read: Read) -> str | None:
    """Say which value of a report is not strict JSON or not the one that its digest names, or nothing."""
    for name, data, digest in _values(report, read):
        if data is None:
            return f"{name} is content that is not here"
        if json_digest(data) != digest:
            return f"{name} is not the one that value_digest names"
        try:
            json_decode(data, name=name)
        except NotStrictJson as exc:
            return str(exc)
    return None


def _values(report: WorkReport, read: Read) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Every value of a report, as (its name, its bytes, its digest as a value)."""
    result, elements = report.result, report.result.elements
    if result.value is not None or report.value_content is not None:
        data = result.value if report.value_content is None else read(report.value_content)
        yield "value", data, report.value_digest
    if elements is None:
        return
    for place in range(len(elements)):
        content = elements.contents.get(place)
        data = elements.values[place] if content is None else read(content[0])
        if data is not None or content is not None:
            yield f"value of element {place}", data, elements.value_digest(place)
