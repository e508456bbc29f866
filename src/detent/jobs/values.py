"""Users' values as they are stored and passed on: strict JSON, with files and results of other work named by digest.

A mapping whose only ``$`` key is one of the words below stands for something else; every other key of a user's that begins
with ``$`` is written with one ``$`` more, so a value can hold anything and is still read back as it was (X-177).

* ``{"$result": "sha256:..."}``: the value of the job whose signed result has this digest; ``sha256:....3`` that of element 3 of an array
* ``{"$file": "sha256:...", "size": 3, "name": "a.txt", "type": "text/plain"}``: bytes in the content store (X-170)

A name that becomes a key (of an output file, say) is a user's or a guest's, and is escaped like any other (`escaped_key`). Results
recorded before that was so may hold such a name as it is; there the word is followed by a mapping, never by a digest, and is
read as the plain key that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from detent.canon import digest_text, parse_digest
from detent.canon.strict_json import JsonValue
from detent.errors import InvalidInput

RESULT: Final = "$result"
FILE: Final = "$file"


def result_reference(named: str) -> dict[str, str]:
    """The placeholder in an argument for the value of a job, by the name of its signed result."""
    return {RESULT: named}


def result_name(digest: bytes, element: int | None = None) -> str:
    """What names a result: the digest of the signed report, with the place of an array's element behind it."""
    return digest_text(digest) if element is None else f"{digest_text(digest)}.{element}"


def split_result_name(named: str) -> tuple[bytes, int | None]:
    """The digest and the place that `result_name` put together; raises `InvalidInput` for anything else."""
    digest, dot, place = named.partition(".")
    if dot and not (place.isascii() and place.isdigit()):
        raise InvalidInput(f"{named!r:.80} does not name the result of an element", details={"path": RESULT})
    return parse_digest(digest), int(place) if dot else None


def is_result(value: JsonValue) -> bool:
    """Whether a value stands for the value of a job."""
    return type(value) is dict and len(value) == 1 and RESULT in value and type(value[RESULT]) is not dict


def is_file(value: JsonValue) -> bool:
    """Whether a value stands for a file."""
    return type(value) is dict and FILE in value and type(value[FILE]) is not dict


def file_reference(digest: str, *, size: int, name: str, content_type: str) -> dict[str, Any]:
    """What stands for a file in the content store."""
    return {FILE: digest, "name": name, "size": size, "type": content_type}


def escaped_key(name: str) -> str:
    """A name as the key of a stored value."""
    return f"${name}" if name[:1] == "$" else name


def escaped(value: JsonValue) -> JsonValue:
    """A plain value as it is stored: keys that begin with ``$`` get one more. For values that hold no references."""
    if type(value) is dict:
        return {escaped_key(key): escaped(item) for key, item in value.items()}
    if type(value) is list:
        return [escaped(item) for item in value]
    return value


def restored(value: JsonValue, result: Callable[[str], JsonValue], file: Callable[[dict[str, Any]], Any]) -> Any:
    """A stored value as the user's code sees it.

    ``result`` gives the stored value of a result by its digest; ``file`` makes a file object of a file's mapping.
    """
    if type(value) is dict:
        if is_result(value):
            return restored(result(value[RESULT]), result, file)
        if is_file(value):
            return file(value)
        return {key[1:] if key[:1] == "$" else key: restored(item, result, file) for key, item in value.items()}
    if type(value) is list:
        return [restored(item, result, file) for item in value]
    return value


def results_named(value: JsonValue) -> Iterator[str]:
    """The digests of the results that a value names, in the order they appear; one may come twice."""
    if type(value) is dict:
        if is_result(value):
            yield value[RESULT]
            return
        for item in value.values():
            yield from results_named(item)
    elif type(value) is list:
        for item in value:
            yield from results_named(item)


def files_named(value: JsonValue) -> Iterator[str]:
    """The digests of the files that a value names, in the order they appear; one may come twice."""
    for mapping in files_told(value):
        if type(mapping[FILE]) is not str:
            raise InvalidInput(f"{FILE} needs a digest, not {mapping[FILE]!r:.80}")
        yield mapping[FILE]


def files_told(value: JsonValue) -> Iterator[dict[str, Any]]:
    """The mappings that stand for files in a value, in the order they appear."""
    if type(value) is dict:
        if is_file(value):
            yield value
            return
        for item in value.values():
            yield from files_told(item)
    elif type(value) is list:
        for item in value:
            yield from files_told(item)
