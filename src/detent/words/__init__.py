"""The words that people and programs read for numbers, lengths of time and states; every room may import them.

* ``quantities``: counts with their nouns, sizes, durations, ages and times.
* ``states``: the one table of states of attempts, jobs, steps and runs, and what they are called on the ledger.

Nothing here is imported eagerly, and nothing here imports another room: `detent --help` loads it.
"""
