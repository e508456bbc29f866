-- The present whole of a ledger database. A new ledger is made from this file; an older one reaches the same shape
-- through migrations/, and a test builds both and compares.
--
-- Two ideas carry the layout:
--
-- * A batch and a record are keyed by one integer, partition * 2^40 + number. Each partition then appends at its own
--   right edge of the tree, and a range of positions is a range of row ids: no index stands beside the order of the log.
-- * Jobs have text ids, often random ones. Behind an index over such ids every transition would touch a page of its own,
--   wherever chance puts it, so each id is turned once into the next integer (job_names). What happens together then
--   lies together: with a million jobs behind it a commit of 100 records writes half the pages it otherwise would.
--
-- Integers are signed 64 bit here. Ticks and sequence numbers from 2^63 on are refused before they arrive.

CREATE TABLE ledger (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    origin TEXT NOT NULL CHECK (length(origin) > 0),
    partitions INTEGER NOT NULL CHECK (partitions BETWEEN 1 AND 65536)
) STRICT;

-- Who owns each partition. Everything else about it can be read off its last batch, so it is not written twice.
CREATE TABLE partitions (
    partition INTEGER PRIMARY KEY CHECK (partition >= 0),
    epoch INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

CREATE TABLE batches (
    batch_key INTEGER PRIMARY KEY CHECK (batch_key >= 0),
    partition INTEGER GENERATED ALWAYS AS (batch_key >> 40) VIRTUAL,
    batch_no INTEGER GENERATED ALWAYS AS (batch_key & 0xFFFFFFFFFF) VIRTUAL,
    epoch INTEGER NOT NULL CHECK (epoch > 0),
    body BLOB NOT NULL CHECK (length(body) > 0),
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    leaf_hash BLOB NOT NULL CHECK (length(leaf_hash) = 32),
    nodes BLOB NOT NULL CHECK (length(nodes) % 32 = 0),
    first_position INTEGER NOT NULL CHECK (first_position >= 0),
    record_count INTEGER NOT NULL CHECK (record_count >= 0),
    first_tick INTEGER NOT NULL CHECK (first_tick >= 0),
    last_tick INTEGER NOT NULL CHECK (last_tick >= first_tick),
    commands BLOB NOT NULL
) STRICT;

-- The decision records of each commit in one piece: their digests are in the signed records, so nothing else names them.
CREATE TABLE decisions (
    batch_key INTEGER PRIMARY KEY REFERENCES batches (batch_key),
    partition INTEGER GENERATED ALWAYS AS (batch_key >> 40) VIRTUAL,
    batch_no INTEGER GENERATED ALWAYS AS (batch_key & 0xFFFFFFFFFF) VIRTUAL,
    body BLOB NOT NULL CHECK (length(body) > 0)
) STRICT;

-- What stored records have in common, and signatures that several messages share; see packing.py. A body, an evidence, a content
-- or commands that begin with a byte from C1 to C3 are packed, and only what they unpack to is signed.
CREATE TABLE shapes (
    shape_no INTEGER PRIMARY KEY CHECK (shape_no BETWEEN 1 AND 16383),
    body BLOB NOT NULL CHECK (length(body) BETWEEN 1 AND 4096)
) STRICT;

CREATE TABLE signatures (
    signature_no INTEGER PRIMARY KEY CHECK (signature_no BETWEEN 1 AND 4294967295),
    body BLOB NOT NULL CHECK (length(body) >= 100 AND length(body) % 32 = 4)
) STRICT;

CREATE TABLE job_names (
    job_no INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL UNIQUE CHECK (length(job_id) > 0)
) STRICT;

-- The kinds are not listed in a CHECK: later parts bring kinds of their own, and a CHECK can only be widened by copying
-- the whole history.
CREATE TABLE records (
    record_key INTEGER PRIMARY KEY CHECK (record_key >= 0),
    partition INTEGER GENERATED ALWAYS AS (record_key >> 40) VIRTUAL,
    position INTEGER GENERATED ALWAYS AS (record_key & 0xFFFFFFFFFF) VIRTUAL,
    batch_no INTEGER NOT NULL CHECK (batch_no >= 0),
    kind TEXT NOT NULL CHECK (length(kind) > 0),
    job_no INTEGER REFERENCES job_names (job_no),
    run_id TEXT CHECK (length(run_id) > 0),
    transition_seq INTEGER CHECK (transition_seq >= 0),
    body BLOB NOT NULL CHECK (length(body) BETWEEN 1 AND 61440),
    evidence BLOB,
    CHECK ((kind = 'transition') = (transition_seq IS NOT NULL)),
    CHECK (kind NOT IN ('transition', 'submitted') OR job_no IS NOT NULL)
) STRICT;

-- Unique where there is a sequence number, that is among transitions (NULLs differ from each other); and the way to all
-- records of one job.
CREATE UNIQUE INDEX records_by_job ON records (job_no, transition_seq) WHERE job_no IS NOT NULL;
CREATE INDEX records_by_run ON records (run_id) WHERE run_id IS NOT NULL AND kind <> 'transition';
CREATE INDEX records_by_rare_kind ON records (kind) WHERE kind NOT IN ('transition', 'submitted');

-- The states are compared one by one: SQLite makes a temporary table of a longer list, for every row it checks.
CREATE TABLE jobs (
    job_no INTEGER PRIMARY KEY REFERENCES job_names (job_no),
    partition INTEGER NOT NULL CHECK (partition >= 0),
    tenant_id TEXT NOT NULL CHECK (length(tenant_id) > 0),
    run_id TEXT CHECK (length(run_id) > 0),
    state TEXT NOT NULL CHECK (
        state = 'QUEUED' OR state = 'RUNNING' OR state = 'SUCCEEDED'
        OR state = 'RETRYING' OR state = 'FAILED' OR state = 'CANCELED'
    ),
    transition_seq INTEGER NOT NULL CHECK (transition_seq >= 0),
    attempt_id INTEGER NOT NULL CHECK (attempt_id >= 0),
    head BLOB NOT NULL CHECK (length(head) = 32),
    tick INTEGER NOT NULL CHECK (tick >= 0),
    body BLOB NOT NULL
) STRICT;

CREATE INDEX jobs_by_run ON jobs (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX jobs_by_state ON jobs (state);

-- A tenant's pages. A job that succeeds writes the first of these once and the second never: live jobs are few, and found by state.
CREATE INDEX jobs_by_tenant ON jobs (tenant_id);
CREATE INDEX jobs_ended_by_tenant ON jobs (tenant_id, state) WHERE state = 'FAILED' OR state = 'CANCELED';

CREATE TABLE runs (
    run_no INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL CHECK (partition >= 0),
    run_id TEXT NOT NULL UNIQUE CHECK (length(run_id) > 0),
    tenant_id TEXT NOT NULL CHECK (length(tenant_id) > 0),
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (length(status) > 0),
    started_tick INTEGER NOT NULL CHECK (started_tick >= 0),
    ended_tick INTEGER CHECK (ended_tick >= started_tick),
    body BLOB NOT NULL
) STRICT;

CREATE INDEX runs_by_start ON runs (started_tick, run_id);
CREATE INDEX runs_open ON runs (started_tick, run_id) WHERE status = 'running';
CREATE INDEX runs_by_tenant ON runs (tenant_id, started_tick, run_id);
CREATE INDEX runs_by_tenant_status ON runs (tenant_id, status, started_tick, run_id);

-- Bytes NULL: the content was erased, and the digest stays known as erased.
CREATE TABLE content (
    content_no INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    bytes BLOB CHECK (length(bytes) <= 16384)
) STRICT;

CREATE INDEX content_erased ON content (digest) WHERE bytes IS NULL;

CREATE TABLE checkpoints (
    checkpoint_no INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL CHECK (partition >= 0),
    batch_no INTEGER NOT NULL CHECK (batch_no >= 0),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    body BLOB NOT NULL,
    UNIQUE (partition, batch_no)
) STRICT;

CREATE TABLE tree_heads (
    partition INTEGER NOT NULL CHECK (partition >= 0),
    size INTEGER NOT NULL CHECK (size > 0),
    note TEXT NOT NULL CHECK (length(note) > 0),
    PRIMARY KEY (partition, size)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusals (
    refusal_no INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL CHECK (partition >= 0),
    tick INTEGER NOT NULL CHECK (tick >= 0),
    job_id TEXT CHECK (length(job_id) > 0),
    code TEXT NOT NULL CHECK (length(code) > 0),
    body BLOB NOT NULL
) STRICT;

-- Which job did which work. Keyed by the job's number, so that rows lie, and are found, in the order of submission. Not part
-- of the ledger: a row goes with the payload it was made from, which is what the last index is for.
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

-- Which element of an array did which work. The job's own row says the rest; its key is the payload's digest, because the array
-- as a whole is not looked for.
CREATE TABLE work_elements (
    execution_key BLOB NOT NULL CHECK (length(execution_key) = 32),
    job_no INTEGER NOT NULL REFERENCES work (job_no),
    element INTEGER NOT NULL CHECK (element >= 0),
    PRIMARY KEY (execution_key, job_no, element)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX work_elements_by_job ON work_elements (job_no, element);

-- Labels and pools by name, each once in its workspace: most jobs share a few.
CREATE TABLE names (
    name_no INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    name TEXT NOT NULL CHECK (length(name) > 0),
    UNIQUE (workspace, name)
) STRICT;

-- What each job is called and which pool it asked for, to be listed by. Not part of the ledger: a row goes with the payload that
-- said so, which is found by the first bytes of its digest; and so does a name that no other job has.
CREATE TABLE job_labels (
    job_no INTEGER PRIMARY KEY CHECK (job_no > 0) REFERENCES job_names (job_no),
    label_no INTEGER NOT NULL,
    pool_no INTEGER,
    payload_mark BLOB NOT NULL CHECK (length(payload_mark) = 8)
) STRICT;

CREATE INDEX job_labels_by_label ON job_labels (label_no);
CREATE INDEX job_labels_by_pool ON job_labels (pool_no) WHERE pool_no IS NOT NULL;
CREATE INDEX job_labels_by_payload ON job_labels (payload_mark);

-- What clients' idempotency keys were answered. A number is given anew when a row is replaced, so the oldest have the lowest.
CREATE TABLE answers (
    answer_no INTEGER PRIMARY KEY,
    scope BLOB NOT NULL UNIQUE CHECK (length(scope) = 32),
    body_digest BLOB NOT NULL CHECK (length(body_digest) = 32),
    response BLOB NOT NULL CHECK (length(response) <= 65536),
    stored_at_ms INTEGER NOT NULL CHECK (stored_at_ms >= 0)
) STRICT;

CREATE INDEX answers_by_time ON answers (stored_at_ms);

-- History is appended to and never rewritten (PIPE-057). Another tool that opens the file can drop these; the signatures
-- and hashes reveal that.
CREATE TRIGGER batches_are_never_updated BEFORE UPDATE ON batches BEGIN
    SELECT RAISE(ABORT, 'batches are append-only');
END;
CREATE TRIGGER batches_are_never_deleted BEFORE DELETE ON batches BEGIN
    SELECT RAISE(ABORT, 'batches are append-only');
END;
CREATE TRIGGER decisions_are_never_updated BEFORE UPDATE ON decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
CREATE TRIGGER decisions_are_never_deleted BEFORE DELETE ON decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
CREATE TRIGGER shapes_are_never_updated BEFORE UPDATE ON shapes BEGIN
    SELECT RAISE(ABORT, 'shapes are append-only');
END;
CREATE TRIGGER shapes_are_never_deleted BEFORE DELETE ON shapes BEGIN
    SELECT RAISE(ABORT, 'shapes are append-only');
END;
CREATE TRIGGER signatures_are_never_updated BEFORE UPDATE ON signatures BEGIN
    SELECT RAISE(ABORT, 'signatures are append-only');
END;
CREATE TRIGGER signatures_are_never_deleted BEFORE DELETE ON signatures BEGIN
    SELECT RAISE(ABORT, 'signatures are append-only');
END;
CREATE TRIGGER records_are_never_updated BEFORE UPDATE ON records BEGIN
    SELECT RAISE(ABORT, 'records are append-only');
END;
CREATE TRIGGER records_are_never_deleted BEFORE DELETE ON records BEGIN
    SELECT RAISE(ABORT, 'records are append-only');
END;
