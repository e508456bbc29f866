-- The index of work and the answers to idempotency keys, beside the ledger. No table of the ledger changes.

CREATE TABLE work (
    job_no INTEGER PRIMARY KEY CHECK (job_no > 0) REFERENCES job_names (job_no),
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    execution_key BLOB NOT NULL CHECK (length(execution_key) = 32),
    label TEXT NOT NULL CHECK (length(label) > 0),
    tick INTEGER NOT NULL CHECK (tick >= 0),
    payload_digest BLOB NOT NULL CHECK (length(payload_digest) = 32)
) STRICT;

CREATE INDEX work_by_key ON work (execution_key, workspace);
CREATE INDEX work_by_label ON work (label, workspace);
CREATE INDEX work_by_payload ON work (payload_digest);

CREATE TABLE answers (
    answer_no INTEGER PRIMARY KEY,
    scope BLOB NOT NULL UNIQUE CHECK (length(scope) = 32),
    body_digest BLOB NOT NULL CHECK (length(body_digest) = 32),
    response BLOB NOT NULL CHECK (length(response) <= 65536),
    stored_at_ms INTEGER NOT NULL CHECK (stored_at_ms >= 0)
) STRICT;

CREATE INDEX answers_by_time ON answers (stored_at_ms);
