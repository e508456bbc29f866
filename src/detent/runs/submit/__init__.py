"""Submitting jobs and waiting for their ends, the same for runs of contracts, ordered maps and single jobs.

`waiters` knows what waits for which job, and which equal work is under way.
"""
