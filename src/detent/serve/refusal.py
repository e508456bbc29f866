"""How a request ends before its handler has answered: with a problem."""

from __future__ import annotations

from collections.abc import Mapping

from detent.access.problem import Problem


class Refusal(Exception):
    """Ends the handling of a request with a problem."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.code)
        self.problem = problem
        self.headers = dict(headers or {})
