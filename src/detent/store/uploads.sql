-- What clients have uploaded: which workspace may name which content, what is on its way, and how much came in a day.

-- name: create_held
-- What a workspace has uploaded. Rows of another workspace with the same digest are its own affair.
CREATE TABLE IF NOT EXISTS held (
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    stored_at_ms INTEGER NOT NULL CHECK (stored_at_ms >= 0),
    named INTEGER NOT NULL CHECK (named = 0 OR named = 1),
    PRIMARY KEY (workspace, digest)
) STRICT, WITHOUT ROWID

-- name: create_held_by_digest
-- The way from a digest to those who hold it, for garbage collection and erasure.
CREATE INDEX IF NOT EXISTS held_by_digest ON held (digest)

-- name: create_open
-- Uploads in parts; how far one has come is the size of its file.
CREATE TABLE IF NOT EXISTS open_uploads (
    upload_id TEXT PRIMARY KEY CHECK (length(upload_id) > 0),
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    begun_at_ms INTEGER NOT NULL CHECK (begun_at_ms >= 0)
) STRICT, WITHOUT ROWID

-- name: create_received
-- Every upload of the last day, for the quotas.
CREATE TABLE IF NOT EXISTS received (
    received_no INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL CHECK (length(workspace) > 0),
    at_ms INTEGER NOT NULL CHECK (at_ms >= 0),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0)
) STRICT

-- name: create_received_by_workspace
-- The day of one workspace.
CREATE INDEX IF NOT EXISTS received_by_workspace ON received (workspace, at_ms)

-- name: begin
-- Groups writes.
BEGIN IMMEDIATE

-- name: commit
-- Ends the group.
COMMIT

-- name: rollback
-- Gives the group up.
ROLLBACK

-- name: hold
-- Lets a workspace name content from now on; again begins its time anew.
INSERT INTO held (workspace, digest, size_bytes, stored_at_ms, named) VALUES (?1, ?2, ?3, ?4, 0)
ON CONFLICT (workspace, digest) DO UPDATE SET stored_at_ms = excluded.stored_at_ms

-- name: holds
-- Whether a workspace holds a digest that counts after ?3.
SELECT size_bytes FROM held WHERE workspace = ?1 AND digest = ?2 AND (named = 1 OR stored_at_ms > ?3)

-- name: name_held
-- A job of the workspace names it: its time never ends.
UPDATE held SET named = 1 WHERE workspace = ?1 AND digest = ?2 AND named = 0

-- name: held_after
-- Every digest that was uploaded after ?1.
SELECT DISTINCT digest FROM held WHERE stored_at_ms > ?1

-- name: forget
-- Content is erased: no workspace holds it any more.
DELETE FROM held WHERE digest = ?1

-- name: expire_held
-- What no job named in its time.
DELETE FROM held WHERE named = 0 AND stored_at_ms <= ?1

-- name: stored_bytes
-- How much a workspace holds.
SELECT ifnull(sum(size_bytes), 0) FROM held WHERE workspace = ?1

-- name: begin_upload
-- An upload in parts begins.
INSERT INTO open_uploads (upload_id, workspace, digest, size_bytes, begun_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: upload
-- One upload of a workspace that still counts.
SELECT upload_id, digest, size_bytes, begun_at_ms FROM open_uploads
WHERE upload_id = ?1 AND workspace = ?2 AND begun_at_ms > ?3

-- name: open_of_workspace
-- How many uploads of a workspace are open, and how many bytes they will have.
SELECT count(*), ifnull(sum(size_bytes), 0) FROM open_uploads WHERE workspace = ?1

-- name: end_upload
-- An upload is complete or given up.
DELETE FROM open_uploads WHERE upload_id = ?1

-- name: uploads_begun_by
-- Uploads whose time is over.
SELECT upload_id FROM open_uploads WHERE begun_at_ms <= ?1

-- name: all_uploads
-- Every upload that is open.
SELECT upload_id FROM open_uploads

-- name: receive
-- Counts an upload.
INSERT INTO received (workspace, at_ms, size_bytes) VALUES (?1, ?2, ?3)

-- name: received_after
-- How many uploads of a workspace came after a moment, how many bytes, and when the first of them came.
SELECT count(*), ifnull(sum(size_bytes), 0), min(at_ms) FROM received WHERE workspace = ?1 AND at_ms > ?2

-- name: expire_received
-- What is older than a day.
DELETE FROM received WHERE at_ms <= ?1
