-- Keys of the elements of arrays, beside the ledger. No table of the ledger changes.

CREATE TABLE work_elements (
    execution_key BLOB NOT NULL CHECK (length(execution_key) = 32),
    job_no INTEGER NOT NULL REFERENCES work (job_no),
    element INTEGER NOT NULL CHECK (element >= 0),
    PRIMARY KEY (execution_key, job_no, element)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX work_elements_by_job ON work_elements (job_no, element);
