"""Reuse: finding out that work has been done already.

Equal work has an equal key. `ingredients` gathers what decides a result (code, arguments, declared files, packages, tools) without
running any of it. `work_keys` makes the key of a step or task, finds the earlier jobs under it and says whether the result of one
still answers for the work. `earlier_jobs` finds the job of the same name that comes nearest, so that `explain` can say what changed.
`path_arguments` finds arguments that are paths and belong to the declared inputs.

Nothing here submits or runs anything. Whether a found result is used is decided in `runs`.
"""
