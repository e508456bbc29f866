"""Reading a home: nothing here changes anything.

- `explain_job`, `explain_run` and `explain_reuse` answer why: what a job waits for, why a step ran or was reused, what changed.
  `explain_history` tells the records of a job in words; `explain_words` has the words that they share.
- `logs` shows what jobs print, also while they run; `plan_preview` says what a run would do with each step.
- `audit` verifies a home straight from its store. `unsigned_rows` compares rows and checkpoints, which no signature covers, with
  the signed history, `missing_content` finds content that is named and neither here nor erased, `signatures` checks many signatures
  on all processors.
- `replay` decides everything again; `export` writes a bundle.
- `trace` writes a replay's decisions line by line; `trace_lines` has the form of the lines, `trace_file` reads and checks them.
  `compare` holds two histories against each other, `rank` sorts runs by metrics.
- `traffic` reads a recorded ledger as load; `what_if` puts it through another scheduling policy.
- `environment` says which lock files the recorded environment covers.
- `doctor` looks a home over, and says what this machine can contain.
"""
