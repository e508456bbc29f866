-- name: make_cursors
-- What a database knows of the runs that write to it: how far each has come in each table.
CREATE TABLE IF NOT EXISTS detent_commits (
    run_id TEXT NOT NULL,
    table_name TEXT NOT NULL,
    next_seq INTEGER NOT NULL CHECK (next_seq >= 0),
    PRIMARY KEY (run_id, table_name)
) WITHOUT ROWID, STRICT

-- name: read_cursor
-- The first seq that a table does not have of a run.
SELECT next_seq FROM detent_commits WHERE run_id = ?1 AND table_name = ?2

-- name: insert_cursor
-- A run begins.
INSERT INTO detent_commits (run_id, table_name, next_seq) VALUES (?1, ?2, 0)

-- name: move_cursor
-- A batch is committed, unless the cursor is not where this run left it.
UPDATE detent_commits SET next_seq = ?4 WHERE run_id = ?1 AND table_name = ?2 AND next_seq = ?3

-- name: find_table
-- What has a name, and how the name is spelled.
SELECT name, type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')

-- name: table_said
-- The statement that made a table.
SELECT sql FROM sqlite_schema WHERE name = ?1 AND type = 'table'

-- name: runs_of_table
-- The runs that have written to a table.
SELECT run_id FROM detent_commits WHERE table_name = ?1

-- name: ended_runs
-- Whether the runs of a table came so far together: one may have gone on with what another left.
SELECT table_name FROM detent_commits WHERE table_name = ?1 GROUP BY table_name HAVING sum(next_seq) >= ?2

-- name: drop_cursors
-- A table is begun anew.
DELETE FROM detent_commits WHERE table_name = ?1

-- name: columns
-- The columns that can be written to.
SELECT name FROM pragma_table_info(?1)

-- name: begin_write
-- Take the write lock now: finding out at the end that another program has it would waste the batch.
BEGIN IMMEDIATE

-- name: commit
-- Make rows and cursor durable, together.
COMMIT

-- name: rollback
-- Leave everything as it was.
ROLLBACK
