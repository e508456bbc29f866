"""Reading a home: nothing here changes anything.

- `explain_job`, `explain_run` and `explain_reuse` answer why: what a job waits for, why a step ran or was reused, what changed.
  `explain_history` tells the records of a job in words; `explain_words` has the words that they share.
- `logs` and `follow_logs` show what jobs print; `plan_preview` says what a run would do with each step.
- `audit` verifies a home straight from its store. `unsigned_rows` compares what is kept beside the signed history with it, `payloads`
  reads what jobs were asked to do, `missing_content` finds content that is named and neither here nor erased, `checkpoints` compares
  checkpoints with the commands before them, `signatures` checks many signatures on all processors.
- `replay` decides everything again; `export` writes a bundle.
- `trace` writes a replay's decisions line by line; `trace_lines` has the form of the lines, `trace_file` reads and checks them.
  `compare` holds two histories against each other, `rank` sorts runs by metrics.
- `traffic` reads a recorded ledger as load; `what_if` puts it through another scheduling policy.
- `environment` says which lock files the recorded environment covers.
- `doctor` looks a home over, `sandbox` says what this machine can contain.
"""
