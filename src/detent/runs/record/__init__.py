"""What a run is on the ledger: its inputs, its identity and lock, the jobs of its steps, its outcome, and how it is shown.

Nothing on the ledger says "step". `recorded_run` puts a run together again from its contract, its jobs and its reuse records, for
`show`, `explain`, `logs`, `retry` and for a driver that resumes it.
"""
