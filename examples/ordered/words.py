"""Count the words of every text, in order. Each text is counted once, even if the run is killed and started again.

    detent map --files 'corpus/*.txt' --compute words:count --commit jsonl:out/counts.jsonl

or as a step of a workflow, with a step after it:

    detent run words.yaml

or as a program:

    python words.py
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import detent


def count(path: Path) -> dict[str, object]:
    """The most frequent words of one text. An empty text is skipped."""
    words = path.read_text(encoding="utf-8").lower().split()
    if not words:
        return detent.SKIP  # type: ignore[return-value]
    return {"text": path.name, "words": len(words), "first": Counter(words).most_common(1)[0][0]}


def total(counts: dict[str, detent.File], shortest: int) -> dict[str, int]:
    """The number of words in all long enough texts. ``counts`` is the result of the map step; ``file`` is the file it wrote."""
    texts = [json.loads(line) for line in counts["file"].read_bytes().splitlines()]
    long_enough = [text["words"] for text in texts if text["words"] >= shortest]
    return {"texts": len(long_enough), "words": sum(long_enough)}


def longest(line: str) -> str:
    """The longest word of one line."""
    return max(line.split(), key=len, default="")


def main() -> None:
    """The same machinery from Python: a loop over lines, its results in order."""
    lines = [line for path in sorted(Path("corpus").glob("*.txt")) for line in path.read_text().splitlines()]
    results = detent.ordered_map(lines, longest)
    for line, word in zip(lines, results, strict=True):
        print(f"{word:12} {line}")
    print(f"{results.summary.succeeded} lines, {results.summary.digest}")


if __name__ == "__main__":
    main()
