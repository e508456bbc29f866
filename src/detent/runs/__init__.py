"""Runs: from a contract, an ordered map or a single call to finished work.

Five folders, each importing only those before it, and the modules beside them, which may import all five:

1. `submit` is what every kind of run does with its jobs: submit them, join equal work, wait for their ends.
2. `record` is what the ledger says about a run: its inputs, its identity and lock, its steps, its outcome.
3. `ordered` runs maps whose results are committed strictly in order, each exactly once.
4. `steps` drives a contract: `next_work` decides about each element, the driver carries it out and waits.
5. `schedules` decides when a contract with a schedule is run, and runs it.

Beside them: `ahead` starts the process that makes workers before the rest is loaded; `runtime` wires one process to a home (session,
backend, supervisor, executors); `handle` decides which run is meant and
who drives it; `single_jobs` is what `detent.Client` stands on; `map_step` and `map_executor` run a map as a step of a contract;
`retry`, `cancel`, `erase` and `find_jobs` are the commands of the same names.
"""
