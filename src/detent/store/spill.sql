-- What a verification does not want to hold in memory: one ordered map in a private file.

-- name: create
-- Makes the map; its key is the table itself, so reading in order is reading the file in order.
CREATE TABLE heads (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID

-- name: begin
-- Groups the writes of one spill.
BEGIN

-- name: commit
-- Ends the group.
COMMIT

-- name: put
-- Sets the value of a key.
INSERT INTO heads (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: delete
-- Forgets a key.
DELETE FROM heads WHERE key = ?1

-- name: get
-- The value of a key.
SELECT value FROM heads WHERE key = ?1

-- name: range
-- A page of the map, in order, after a key and before another.
SELECT key, value FROM heads WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3

-- name: first
-- Whether a key itself is there: the first of a range that starts with it.
SELECT key, value FROM heads WHERE key = ?1

-- name: count
-- How many keys there are.
SELECT count(*) FROM heads
