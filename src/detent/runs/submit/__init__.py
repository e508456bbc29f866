"""Submitting jobs and waiting for their ends, the same for runs of contracts, ordered maps and single jobs.

`waiters` knows what waits for which job, and which equal work is under way. `submitter` submits in batches, handles a full queue,
and hears of ends: from the supervisor of this process, from commits, or by asking the ledger.
"""
