"""Ordered runs at work: the effects around `detent.ordered`.

Start reading at `spec` (what a run is), then `driver` (compute lane and cursor), `commit_thread` (the destination), `notes`
(what goes onto the ledger and when) and `recovery` (how a killed run is read back). `chunk` is what workers do.
"""
