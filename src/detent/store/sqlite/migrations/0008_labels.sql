-- A label for every job, and the pool that it asked for, beside the ledger. Of jobs that are stored already, those in the index of work
-- have one from there, unless their payload was erased. No table of the ledger changes.

CREATE TABLE names (
    name_no INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    name TEXT NOT NULL CHECK (length(name) > 0),
    UNIQUE (workspace, name)
) STRICT;

CREATE TABLE job_labels (
    job_no INTEGER PRIMARY KEY CHECK (job_no > 0) REFERENCES job_names (job_no),
    label_no INTEGER NOT NULL,
    pool_no INTEGER,
    payload_mark BLOB NOT NULL CHECK (length(payload_mark) = 8)
) STRICT;

CREATE INDEX job_labels_by_label ON job_labels (label_no);
CREATE INDEX job_labels_by_pool ON job_labels (pool_no) WHERE pool_no IS NOT NULL;
CREATE INDEX job_labels_by_payload ON job_labels (payload_mark);

INSERT INTO names (workspace, name) SELECT workspace, label FROM work GROUP BY workspace, label;

INSERT INTO job_labels (job_no, label_no, payload_mark)
SELECT job_no, name_no, substr(payload_digest, 1, 8)
FROM work CROSS JOIN names ON names.workspace = work.workspace AND names.name = work.label
WHERE NOT EXISTS (SELECT 1 FROM content WHERE digest = payload_digest AND bytes IS NULL);

DELETE FROM names WHERE NOT EXISTS (SELECT 1 FROM job_labels WHERE label_no = name_no);
