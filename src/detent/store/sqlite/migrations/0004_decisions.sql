-- The decision records of each commit in one piece. Decisions of earlier commits stay pieces of content of their own.

CREATE TABLE decisions (
    batch_key INTEGER PRIMARY KEY REFERENCES batches (batch_key),
    partition INTEGER GENERATED ALWAYS AS (batch_key >> 40) VIRTUAL,
    batch_no INTEGER GENERATED ALWAYS AS (batch_key & 0xFFFFFFFFFF) VIRTUAL,
    body BLOB NOT NULL CHECK (length(body) > 0)
) STRICT;

CREATE TRIGGER decisions_are_never_updated BEFORE UPDATE ON decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
CREATE TRIGGER decisions_are_never_deleted BEFORE DELETE ON decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
