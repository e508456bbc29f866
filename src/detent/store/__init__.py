"""Where the ledger is kept: one protocol, several stores, one conformance suite for all of them.

``api`` says what a store does. ``memory`` (writing) and ``memory_reader`` are the reference that tests compare the others with;
no home uses it. ``sqlite`` is the store that survives a power cut. ``content`` keeps what is too large for a database. Nothing
is imported here, so that naming the room costs nothing.
"""
