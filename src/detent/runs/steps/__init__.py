"""Driving the steps of a contract.

`plan` asks the planner for one action for each step. `graph` knows which steps may begin, `choosing` picks the elements that are
submitted next, `reusing` takes earlier results and joins equal work that is under way, `orders` makes the jobs, `job_waiters` knows
which element waits for which job. The `driver` carries it out and holds nothing that is not on the ledger.
"""
