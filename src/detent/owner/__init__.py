"""The owner of a home: the single writer of its ledger, and every way to reach it.

One process at a time owns a home. It takes requests from callers in its own process and, over a socket, from other processes of
the same user, decides them with the kernel, appends the records in one transaction, and only then answers.

Where to begin reading:

- `owner` is the loop. `turn` makes one turn of the requests that wait; `log_writer` seals and appends it; `ticks` says what time it
  is; `recovery` opens a ledger again after a restart; `kept_answers` bounds what idempotency keys keep.
- `acceptance` turns a worker's signed report into the commands that end an attempt; `store_history` reads the store for the
  kernel, for observers, and for a worker that asks again which leases it holds.
- `session` is how a process reaches the owner, whether it owns the home itself or is a client (`socket_client`, `socket_server`,
  `socket_messages`), and repeats requests that are safe to repeat.
- `place` says where a home may be, `home` finds and makes the directory, `lock` decides which process owns it and which of its threads computes, `settings` reads its
  configuration, `home_permissions` refuses homes of other users and guards private keys.
- `keys` says which keys are trusted, rotates them, and gives a copied home new ones; `state_directory` keeps tree heads and the
  place of each ledger outside the home.
- `content` stores payloads and results by digest; `views` reads rows and records as plain data.
- `wiring` picks the concrete parts. `backend` is an open home as clients, runs and workers use it: session, keys, content, orders
  and reports.
- `metrics` holds the values of the metric families, `home_metrics` follows a ledger with them; `telemetry` keeps the metrics file and
  writes the lines that `structured_log` makes of commits.
"""
