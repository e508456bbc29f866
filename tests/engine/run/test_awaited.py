"""Who waits for which job, and how many of them count against a run's own limit."""

from __future__ import annotations

from typing import Any

from detent.engine.awaited import Awaited
from detent.engine.recipes import Recipe, Wanted
from detent.engine.step_run import Element
from detent.jobs.keys import ExecutionKey

STEP: Any = None
"""What an element belongs to; nobody asks here."""


def element(job_id: str) -> Element:
    return Element(STEP, None, job_id)


def recipe(key: str | None = "sha256:1") -> Recipe:
    return Recipe(None if key is None else ExecutionKey(key), {}, Wanted(kind="python", target="steps:one"))


def test_who_waits_for_the_job_of_another_does_not_count_as_one_more_under_way() -> None:
    """X-138, X-186."""
    awaited, own, other = Awaited(), element("own"), element("other")
    awaited.add(own, "own", recipe())
    awaited.add(other, "own", recipe())
    assert (awaited.live, awaited.joined) == (2, 1)
    assert awaited.pop("own") == [own, other]
    assert (awaited.live, awaited.joined) == (0, 0)
    assert awaited.pop("own") == []


def test_what_a_job_was_made_of_is_kept_for_those_who_joined_it_and_for_nobody_else() -> None:
    """X-186: they record it when they take its result. A long run keeps nothing of what has ended."""
    awaited, own, other, made = Awaited(), element("own"), element("other"), recipe()
    awaited.add(own, "own", recipe())
    awaited.add(other, "own", made)
    awaited.pop("own")
    assert awaited.recipe(own) is None
    assert awaited.recipe(other) is made


def test_a_job_that_has_ended_is_nobodys_same_work_any_more() -> None:
    """X-186."""
    awaited, own, other = Awaited(), element("own"), element("other")
    awaited.add(own, "own", recipe())
    assert awaited.same_work(other, recipe()) == "own"
    assert awaited.same_work(own, recipe()) is None
    assert awaited.same_work(other, recipe("sha256:2")) is None
    awaited.pop("own")
    assert awaited.same_work(other, recipe()) is None
