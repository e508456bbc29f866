-- Every statement the SQLite store runs, pragmas apart. Each block has a name, a line that says what it does, and the
-- statement. Parameters are numbered in the order of the row tuple that is bound to them, so that the writer can hand
-- its rows over as they are.

-- name: begin_write
-- Takes the write lock at once: a transaction that read first could not be promoted later.
BEGIN IMMEDIATE

-- name: begin_read
-- Opens a read transaction; the first read in it fixes what it sees.
BEGIN DEFERRED

-- name: commit
-- Makes the transaction durable.
COMMIT

-- name: rollback
-- Leaves nothing of the transaction.
ROLLBACK

-- name: insert_ledger
-- Gives a new ledger its name and its number of partitions.
INSERT INTO ledger (id, origin, partitions) VALUES (1, ?1, ?2)

-- name: insert_partition
-- Makes one empty partition without an owner.
INSERT INTO partitions (partition, epoch) VALUES (?1, 0)

-- name: schema_objects
-- Everything that is defined in the file; statistics that SQLite itself has gathered define nothing.
SELECT type, name, tbl_name, sql FROM sqlite_schema
WHERE type <> 'table' OR name NOT IN ('sqlite_stat1', 'sqlite_stat4')

-- name: ledger
-- The ledger's name, its number of partitions, and how many of them there are.
SELECT origin, partitions, (SELECT count(*) FROM partitions) FROM ledger

-- name: take_ownership
-- Raises the epoch, which deposes the owner under the one before.
UPDATE partitions SET epoch = epoch + 1 WHERE partition = ?1 RETURNING epoch

-- name: insert_batch
-- Appends a signed batch record; the compare of compare-and-swap is part of it. The epoch is NULL unless the partition is
-- still at ?3, and the first position is NULL unless the batch goes on where the one before it ended: neither may be.
INSERT INTO batches (
    batch_key, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count, first_tick, last_tick
)
VALUES (
    ?1 << 40 | ?2, (SELECT epoch FROM partitions WHERE partition = ?1 AND epoch = ?3), ?4, ?5, ?6, ?7, ?8,
    CASE ?2 WHEN 0 THEN iif(?9 = 0, 0, NULL) ELSE (
        SELECT ?9 FROM batches
        WHERE batch_key = (?1 << 40 | ?2) - 1 AND first_position + record_count = ?9 AND last_tick <= ?11
    ) END,
    ?10, ?11, ?12
)

-- name: load_batch
-- Keeps a batch of another ledger as it is.
INSERT INTO batches (
    batch_key, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count, first_tick, last_tick
)
VALUES (?1 << 40 | ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)

-- name: load_job
-- Keeps the row of a job of another ledger as it is; one that is there stays.
INSERT INTO jobs (job_no, partition, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body)
VALUES ((SELECT job_no FROM job_names WHERE job_id = ?2), ?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (job_no) DO NOTHING

-- name: load_epoch
-- Lets a copy go on from the epoch ?1 of partition ?2 of its source.
UPDATE partitions SET epoch = ?1 WHERE partition = ?2

-- name: insert_job_name
-- Gives a job id its number; an id that has one keeps it.
INSERT INTO job_names (job_id) VALUES (?1) ON CONFLICT (job_id) DO NOTHING

-- name: insert_record
-- Appends one record.
INSERT INTO records (record_key, batch_no, kind, job_no, run_id, transition_seq, body, evidence)
VALUES (?1 << 40 | ?2, ?3, ?4, (SELECT job_no FROM job_names WHERE job_id = ?5), ?6, ?7, ?8, ?9)

-- name: insert_job
-- Makes the row of a job that must not exist yet.
INSERT INTO jobs (job_no, partition, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body)
SELECT (SELECT job_no FROM job_names WHERE job_id = ?2), ?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE ?11 = -1

-- name: update_job
-- Moves a job's row from the sequence number the writer saw, or changes nothing.
UPDATE jobs
SET state = ?5, transition_seq = ?6, attempt_id = ?7, head = ?8, tick = ?9, body = ?10
WHERE job_no = (SELECT job_no FROM job_names WHERE job_id = ?2)
  AND transition_seq = ?11 AND partition = ?1 AND tenant_id = ?3 AND run_id IS ?4

-- name: upsert_run
-- Makes or replaces the fold of a run.
INSERT INTO runs (partition, run_id, tenant_id, name, status, started_tick, ended_tick, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (run_id) DO UPDATE
SET partition = ?1, tenant_id = ?3, name = ?4, status = ?5, started_tick = ?6, ended_tick = ?7, body = ?8

-- name: insert_content
-- Keeps bytes under their digest; bytes that are there stay, bytes that were erased come back.
INSERT INTO content (digest, bytes) VALUES (?1, ?2)
ON CONFLICT (digest) DO UPDATE SET bytes = ?2 WHERE bytes IS NULL

-- name: erase_content
-- Takes the bytes away and remembers the digest as erased, whether or not the bytes were in the database.
INSERT INTO content (digest, bytes) VALUES (?1, NULL) ON CONFLICT (digest) DO UPDATE SET bytes = NULL

-- name: delete_content
-- Forgets unreferenced content; what was erased stays known.
DELETE FROM content WHERE digest = ?1 AND bytes IS NOT NULL RETURNING length(bytes)

-- name: insert_decisions
-- Keeps the decision records of a batch.
INSERT INTO decisions (batch_key, body) VALUES (?1 << 40 | ?2, ?3)

-- name: insert_shape
-- Keeps what records have in common.
INSERT INTO shapes (shape_no, body) VALUES (?1, ?2)

-- name: insert_signature
-- Keeps a signature that several messages share, with the hashes of their paths.
INSERT INTO signatures (signature_no, body) VALUES (?1, ?2)

-- name: insert_refusal
-- Adds to the decision log.
INSERT INTO refusals (partition, tick, job_id, code, body) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: delete_old_refusals
-- Keeps the newest ?1 refusals. Numbers have no gaps, because only the oldest are ever taken away.
DELETE FROM refusals WHERE refusal_no <= (SELECT max(refusal_no) FROM refusals) - ?1

-- name: insert_checkpoint
-- Keeps a kernel checkpoint.
INSERT INTO checkpoints (partition, batch_no, digest, body) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (partition, batch_no) DO UPDATE SET digest = ?3, body = ?4

-- name: delete_old_checkpoints
-- Keeps the newest ?2 checkpoints of a partition.
DELETE FROM checkpoints
WHERE partition = ?1
  AND batch_no < (SELECT min(batch_no) FROM (
      SELECT batch_no FROM checkpoints WHERE partition = ?1 ORDER BY batch_no DESC LIMIT ?2))

-- name: insert_tree_head
-- Keeps a signed tree head; one for the same size replaces it, so that a cosigned note can take the plain one's place.
INSERT INTO tree_heads (partition, size, note) VALUES (?1, ?2, ?3)
ON CONFLICT (partition, size) DO UPDATE SET note = ?3

-- name: insert_work
-- Indexes what a job does; a job that is indexed stays as it is. A job that was never submitted has no number: 0, which is
-- refused (NULL would be given the next number).
INSERT INTO work (workspace, execution_key, job_no, label, tick, payload_digest)
VALUES (?1, ?2, ifnull((SELECT job_no FROM job_names WHERE job_id = ?3), 0), ?4, ?5, ?6)
ON CONFLICT (job_no) DO NOTHING

-- name: insert_work_element
-- Indexes what one element of an array does; its job's own row is there before it.
INSERT INTO work_elements (execution_key, job_no, element)
VALUES (?3, (SELECT job_no FROM job_names WHERE job_id = ?1), ?2)
ON CONFLICT DO NOTHING

-- name: erase_work_elements
-- Forgets the keys of an array's elements whose payload is erased.
DELETE FROM work_elements WHERE job_no IN (SELECT job_no FROM work WHERE payload_digest = ?1)

-- name: erase_work
-- Forgets the key of what was made from a payload that is erased; that a job of its name did it stays known.
UPDATE work SET execution_key = payload_digest WHERE payload_digest = ?1

-- name: insert_name
-- Keeps a label or the name of a pool, unless the workspace has it.
INSERT INTO names (workspace, name) VALUES (?1, ?2)
ON CONFLICT (workspace, name) DO NOTHING

-- name: insert_label
-- Says what a job is called and which pool it asked for; a job that has a label keeps it. Both names are there before it.
INSERT INTO job_labels (job_no, label_no, pool_no, payload_mark)
VALUES (
    ifnull((SELECT job_no FROM job_names WHERE job_id = ?1), 0),
    (SELECT name_no FROM names WHERE workspace = ?2 AND name = ?3),
    (SELECT name_no FROM names WHERE workspace = ?2 AND name = ?4),
    ?5
)
ON CONFLICT (job_no) DO NOTHING

-- name: erase_labels
-- Forgets what a job was called whose payload is erased, and returns the numbers of its names.
DELETE FROM job_labels WHERE payload_mark = substr(?1, 1, 8) RETURNING label_no, pool_no

-- name: erase_name
-- Forgets a name that no job has any more.
DELETE FROM names
WHERE name_no = ?1
    AND NOT EXISTS (SELECT 1 FROM job_labels WHERE label_no = ?1)
    AND NOT EXISTS (SELECT 1 FROM job_labels WHERE pool_no = ?1)

-- name: upsert_answer
-- Keeps an answer; one that was kept within the last ?5 milliseconds stays.
INSERT INTO answers (scope, body_digest, response, stored_at_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (scope) DO UPDATE
SET body_digest = ?2, response = ?3, stored_at_ms = ?4
WHERE stored_at_ms <= ?4 - ?5

-- name: delete_expired_answers
-- Forgets answers that were kept until ?1 or before.
DELETE FROM answers WHERE stored_at_ms <= ?1

-- name: answered_jobs
-- The jobs that kept answers name, as they stand.
SELECT scope, body
FROM answers CROSS JOIN job_names ON job_names.job_id = CAST(response AS TEXT) CROSS JOIN jobs USING (job_no)

-- name: whole_answers
-- Answers that are kept whole; each may name many jobs.
SELECT scope, response FROM answers WHERE substr(response, 1, 1) = x'01'

-- name: delete_answer
-- Forgets one answer.
DELETE FROM answers WHERE scope = ?1

-- name: head
-- Where a partition's log stands: its owner's epoch and what its last batch says.
SELECT partitions.epoch, ifnull(batch_no + 1, 0), ifnull(leaf_hash, zeroblob(32)),
       ifnull(first_position + record_count, 0), ifnull(last_tick, 0)
FROM partitions
LEFT JOIN batches ON batch_key = (
    SELECT max(batch_key) FROM batches WHERE batch_key >= ?1 << 40 AND batch_key < ?1 + 1 << 40)
WHERE partitions.partition = ?1

-- name: batches
-- Batches of a partition from number ?2 up to but not including ?3.
SELECT partition, batch_no, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count,
       first_tick, last_tick
FROM batches
WHERE batch_key >= (?1 << 40 | ?2) AND batch_key < (?1 << 40) + ?3
ORDER BY batch_key

-- name: records
-- Records of a partition from position ?2 up to but not including ?3.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM records LEFT JOIN job_names USING (job_no)
WHERE record_key >= (?1 << 40 | ?2) AND record_key < (?1 << 40) + ?3
ORDER BY record_key

-- name: records_of_job
-- A job's records in the order in which they were appended.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM job_names CROSS JOIN records USING (job_no)
WHERE job_id = ?1
ORDER BY record_key

-- name: records_of_rare_kind
-- Records of any kind but the two that every job has from position ?3 on, through an index that holds only those.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM records LEFT JOIN job_names USING (job_no)
WHERE kind NOT IN ('transition', 'submitted') AND kind = ?2
  AND record_key >= (?1 << 40) + ?3 AND record_key < ?1 + 1 << 40
ORDER BY record_key

-- name: records_of_common_kind
-- Records of a kind that every job has: most of the partition is the answer, so the partition is read through.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM records LEFT JOIN job_names USING (job_no)
WHERE kind = ?2 AND record_key >= (?1 << 40) + ?3 AND record_key < ?1 + 1 << 40
ORDER BY record_key

-- name: records_of_run
-- A run's own records and the submissions of its jobs.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM records LEFT JOIN job_names USING (job_no)
WHERE run_id = ?1 AND kind <> 'transition'
ORDER BY record_key

-- name: transition
-- The transition of a job that carries a sequence number.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM job_names CROSS JOIN records USING (job_no)
WHERE job_id = ?1 AND transition_seq = ?2

-- name: record_of_run
-- The newest record of kind ?2 that a run has of its own. What ended it is found first.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM records INDEXED BY records_by_run LEFT JOIN job_names USING (job_no)
WHERE run_id = ?1 AND kind <> 'transition' AND kind = ?2
ORDER BY record_key DESC LIMIT 1

-- name: submissions
-- The first records of some jobs; a JSON list of their ids says which.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM json_each(?1) AS wanted CROSS JOIN job_names CROSS JOIN records USING (job_no)
WHERE job_id = wanted.value AND transition_seq IS NULL AND kind = 'submitted'

-- name: transitions
-- Some transitions of some jobs; a JSON list of pairs of a job's id and a sequence number says which.
SELECT partition, position, batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM json_each(?1) AS wanted CROSS JOIN job_names CROSS JOIN records USING (job_no)
WHERE job_id = wanted.value ->> 0 AND transition_seq = wanted.value ->> 1

-- name: job
-- One job's row.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM job_names CROSS JOIN jobs USING (job_no)
WHERE job_id = ?1

-- name: jobs_of
-- The rows of some jobs; their ids are a JSON list.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM json_each(?1) AS wanted CROSS JOIN job_names CROSS JOIN jobs USING (job_no)
WHERE job_id = wanted.value

-- name: jobs
-- Jobs by id after ?2, at most ?3 of them, of one state unless ?1 is NULL.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM job_names CROSS JOIN jobs USING (job_no)
WHERE job_id > ?2 AND (?1 IS NULL OR state = ?1)
ORDER BY job_id LIMIT ?3

-- name: jobs_in_state
-- The same for a state in which few jobs stand: found by state, then sorted.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_state CROSS JOIN job_names USING (job_no)
WHERE state = ?1 AND job_id > ?2
ORDER BY job_id LIMIT ?3

-- name: jobs_of_run
-- The same for the jobs of one run.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_run CROSS JOIN job_names USING (job_no)
WHERE run_id = ?4 AND job_id > ?2 AND (?1 IS NULL OR state = ?1)
ORDER BY job_id LIMIT ?3

-- name: recent_jobs
-- Jobs as they were submitted, the newest first, at most ?2 of them, of one state unless ?1 is NULL.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs CROSS JOIN job_names USING (job_no)
WHERE ?1 IS NULL OR state = ?1
ORDER BY jobs.job_no DESC LIMIT ?2

-- name: recent_jobs_in_state
-- The same for a state in which few jobs stand.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_state CROSS JOIN job_names USING (job_no)
WHERE state = ?1
ORDER BY jobs.job_no DESC LIMIT ?2

-- name: recent_jobs_of_run
-- The same for the jobs of one run.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_run CROSS JOIN job_names USING (job_no)
WHERE run_id = ?3 AND (?1 IS NULL OR state = ?1)
ORDER BY jobs.job_no DESC LIMIT ?2

-- name: jobs_page
-- A tenant's jobs numbered below ?2 as they were submitted, the newest first, at most ?3, of one state unless ?4 is NULL.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_tenant CROSS JOIN job_names USING (job_no)
WHERE tenant_id = ?1 AND jobs.job_no < ?2 AND (?4 IS NULL OR state = ?4) AND ?5 IS NULL
ORDER BY jobs.job_no DESC LIMIT ?3

-- name: jobs_page_live
-- The same for a state in which jobs do not stay: few of all tenants are in it.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_state CROSS JOIN job_names USING (job_no)
WHERE state = ?4 AND jobs.job_no < ?2 AND tenant_id = ?1 AND ?5 IS NULL
ORDER BY jobs.job_no DESC LIMIT ?3

-- name: jobs_page_ended
-- The same for jobs that failed or were cancelled, through an index that holds only those.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_ended_by_tenant CROSS JOIN job_names USING (job_no)
WHERE tenant_id = ?1 AND state = ?4 AND (state = 'FAILED' OR state = 'CANCELED') AND jobs.job_no < ?2 AND ?5 IS NULL
ORDER BY jobs.job_no DESC LIMIT ?3

-- name: jobs_page_of_run
-- The same for the jobs of one run.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM jobs INDEXED BY jobs_by_run CROSS JOIN job_names USING (job_no)
WHERE run_id = ?5 AND jobs.job_no < ?2 AND tenant_id = ?1 AND (?4 IS NULL OR state = ?4)
ORDER BY jobs.job_no DESC LIMIT ?3

-- name: jobs_page_labelled
-- The same for the jobs under one label.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM job_labels INDEXED BY job_labels_by_label CROSS JOIN jobs USING (job_no) CROSS JOIN job_names USING (job_no)
WHERE label_no = (SELECT name_no FROM names WHERE workspace = ?1 AND name = ?5) AND job_labels.job_no < ?2
    AND tenant_id = ?1 AND (?4 IS NULL OR state = ?4)
ORDER BY job_labels.job_no DESC LIMIT ?3

-- name: jobs_page_in_pool
-- The same for the jobs that asked for one pool.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM job_labels INDEXED BY job_labels_by_pool CROSS JOIN jobs USING (job_no) CROSS JOIN job_names USING (job_no)
WHERE pool_no = (SELECT name_no FROM names WHERE workspace = ?1 AND name = ?5) AND job_labels.job_no < ?2
    AND tenant_id = ?1 AND (?4 IS NULL OR state = ?4)
ORDER BY job_labels.job_no DESC LIMIT ?3

-- name: jobs_prefixed
-- A tenant's jobs whose ids are from ?2 up to ?3 and behind ?4, by id, at most ?5.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM job_names CROSS JOIN jobs USING (job_no)
WHERE job_id >= ?2 AND job_id < ?3 AND job_id > ?4 AND tenant_id = ?1
ORDER BY job_id LIMIT ?5

-- name: runs_prefixed
-- The same for runs.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs
WHERE run_id >= ?2 AND run_id < ?3 AND run_id > ?4 AND +tenant_id = ?1
ORDER BY run_id LIMIT ?5

-- name: last_run_prefixed
-- The last, by id, of a tenant's runs whose ids begin so: from ?2 up to but not including ?3.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs
WHERE run_id >= ?2 AND run_id < ?3 AND +tenant_id = ?1
ORDER BY run_id DESC LIMIT 1

-- name: tenant_job_counts
-- How many jobs of each tenant are in each state.
SELECT tenant_id, state, count(*) FROM jobs GROUP BY tenant_id, state

-- name: tenant_run_counts
-- How many runs of each tenant have each status.
SELECT tenant_id, status, count(*) FROM runs GROUP BY tenant_id, status

-- name: runs_page
-- A tenant's runs before tick ?2 and id ?3, the newest first, at most ?4; ?5 is unused.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs INDEXED BY runs_by_tenant
WHERE tenant_id = ?1 AND (started_tick, run_id) < (?2, ?3) AND ?5 IS NULL
ORDER BY started_tick DESC, run_id DESC LIMIT ?4

-- name: runs_page_of_status
-- The same for one status.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs INDEXED BY runs_by_tenant_status
WHERE tenant_id = ?1 AND status = ?5 AND (started_tick, run_id) < (?2, ?3)
ORDER BY started_tick DESC, run_id DESC LIMIT ?4

-- name: job_heads
-- Every job's place in the canonical log, by the bytes of its id.
SELECT job_id, transition_seq, head FROM job_names CROSS JOIN jobs USING (job_no) ORDER BY job_id

-- name: job_heads_of_run
-- The same for the jobs of one run.
SELECT job_id, transition_seq, head
FROM jobs INDEXED BY jobs_by_run CROSS JOIN job_names USING (job_no)
WHERE run_id = ?1
ORDER BY job_id

-- name: job_counts
-- How many jobs are in each state; reads the index of states, never a job.
SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state

-- name: run
-- One run's row.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body FROM runs WHERE run_id = ?1

-- name: runs
-- Runs, or those of status ?2, the newest first, at most ?1 of them.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs
WHERE ?2 IS NULL OR status = ?2
ORDER BY started_tick DESC, run_id DESC LIMIT ?1

-- name: runs_open
-- Runs that have not ended, the newest first, at most ?1 of them, through an index that holds only those.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM runs
WHERE status = 'running'
ORDER BY started_tick DESC, run_id DESC LIMIT ?1

-- name: content
-- The bytes under a digest; NULL when they were erased.
SELECT bytes FROM content WHERE digest = ?1

-- name: contents
-- The bytes under some digests, as far as they are still there; the digests are a JSON list of hex.
SELECT digest, bytes FROM json_each(?1) AS wanted CROSS JOIN content
WHERE digest = unhex(wanted.value) AND bytes IS NOT NULL

-- name: content_digests
-- Digest and size of everything that is still there.
SELECT digest, length(bytes) FROM content WHERE bytes IS NOT NULL ORDER BY digest

-- name: is_erased
-- One row when the digest is known as erased.
SELECT 1 FROM content WHERE digest = ?1 AND bytes IS NULL

-- name: erased_digests
-- Every digest known as erased.
SELECT digest FROM content WHERE bytes IS NULL ORDER BY digest

-- name: decisions
-- Decision records of a partition's batches from number ?2 up to but not including ?3.
SELECT partition, batch_no, body
FROM decisions
WHERE batch_key >= (?1 << 40 | ?2) AND batch_key < (?1 << 40) + ?3
ORDER BY batch_key

-- name: shapes
-- Shapes with a number above ?1.
SELECT shape_no, body FROM shapes WHERE shape_no > ?1 ORDER BY shape_no

-- name: signature
-- A signature that several messages share.
SELECT body FROM signatures WHERE signature_no = ?1

-- name: last_signature
-- The number of the newest shared signature.
SELECT ifnull(max(signature_no), 0) FROM signatures

-- name: checkpoints
-- A partition's checkpoints, the newest first.
SELECT partition, batch_no, digest, body FROM checkpoints WHERE partition = ?1 ORDER BY batch_no DESC

-- name: tree_heads
-- A partition's tree heads, the newest first.
SELECT partition, size, note FROM tree_heads WHERE partition = ?1 ORDER BY size DESC

-- name: refusals
-- The newest refusals first, at most ?2 of them, of one job unless ?1 is NULL. The log is bounded, so it is read through.
SELECT partition, tick, job_id, code, body
FROM refusals
WHERE ?1 IS NULL OR job_id = ?1
ORDER BY refusal_no DESC LIMIT ?2

-- name: work
-- The jobs that do a piece of work, by their numbers.
SELECT work.job_no, workspace, execution_key, job_id, label, tick, payload_digest, NULL
FROM work INDEXED BY work_by_key CROSS JOIN job_names USING (job_no)
WHERE execution_key = ?2 AND workspace = ?1
ORDER BY work.job_no

-- name: work_in_elements
-- The elements of arrays that do a piece of work, by the numbers of their jobs.
SELECT work.job_no, workspace, work_elements.execution_key, job_id, label, tick, payload_digest, element
FROM work_elements CROSS JOIN work USING (job_no) CROSS JOIN job_names USING (job_no)
WHERE work_elements.execution_key = ?2 AND workspace = ?1
ORDER BY work_elements.job_no, work_elements.element

-- name: work_of_keys
-- The jobs that do any of some pieces of work, with their rows, by their numbers; the keys are a JSON list of hex.
SELECT work.job_no, workspace, execution_key, job_id, label, work.tick, payload_digest, NULL,
    partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM json_each(?2) AS wanted CROSS JOIN work INDEXED BY work_by_key CROSS JOIN job_names USING (job_no)
    CROSS JOIN jobs USING (job_no)
WHERE execution_key = unhex(wanted.value) AND workspace = ?1
ORDER BY work.job_no

-- name: work_of_keys_in_elements
-- The elements of arrays that do any of some pieces of work, with the rows of their jobs, by the numbers of these.
SELECT work.job_no, workspace, work_elements.execution_key, job_id, label, work.tick, payload_digest, element,
    partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM json_each(?2) AS wanted CROSS JOIN work_elements CROSS JOIN work USING (job_no) CROSS JOIN job_names USING (job_no)
    CROSS JOIN jobs USING (job_no)
WHERE work_elements.execution_key = unhex(wanted.value) AND workspace = ?1
ORDER BY work.job_no, element

-- name: work_labelled
-- The jobs under a label, the newest first, at most ?3 of them.
SELECT workspace, execution_key, job_id, label, tick, payload_digest, NULL
FROM work INDEXED BY work_by_label CROSS JOIN job_names USING (job_no)
WHERE label = ?2 AND workspace = ?1
ORDER BY work.job_no DESC LIMIT ?3

-- name: work_rows
-- The whole index, by the numbers of the jobs; a row whose number no job has stays visible under an empty name.
SELECT workspace, execution_key, ifnull(job_id, ''), label, tick, payload_digest, NULL
FROM work LEFT JOIN job_names USING (job_no)
ORDER BY work.job_no

-- name: label
-- What a job is called and which pool it asked for; a name that is not there stays visible as empty.
SELECT job_id, ifnull(labels.workspace, ''), ifnull(labels.name, ''),
    CASE WHEN pool_no IS NULL THEN NULL ELSE ifnull(pools.name, '') END, payload_mark
FROM job_names
    CROSS JOIN job_labels USING (job_no)
    LEFT JOIN names AS labels ON labels.name_no = label_no
    LEFT JOIN names AS pools ON pools.name_no = pool_no
WHERE job_id = ?1

-- name: label_rows
-- The same for all jobs, by their numbers.
SELECT job_id, ifnull(labels.workspace, ''), ifnull(labels.name, ''),
    CASE WHEN pool_no IS NULL THEN NULL ELSE ifnull(pools.name, '') END, payload_mark
FROM job_labels
    CROSS JOIN job_names USING (job_no)
    LEFT JOIN names AS labels ON labels.name_no = label_no
    LEFT JOIN names AS pools ON pools.name_no = pool_no
ORDER BY job_labels.job_no

-- name: work_element_rows
-- The keys of all elements of arrays, by the numbers of their jobs; a row of no job stays visible under an empty name.
SELECT ifnull(job_id, ''), element, execution_key
FROM work_elements INDEXED BY work_elements_by_job LEFT JOIN job_names USING (job_no)
ORDER BY work_elements.job_no, element

-- name: jobs_outside_work
-- Jobs without a row in the index, by their numbers.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM jobs CROSS JOIN job_names USING (job_no)
WHERE NOT EXISTS (SELECT 1 FROM work WHERE work.job_no = jobs.job_no)
ORDER BY jobs.job_no

-- name: labels_of_run
-- The labels of what the jobs of a run do, some of them more than once.
SELECT label
FROM jobs INDEXED BY jobs_by_run CROSS JOIN work USING (job_no)
WHERE run_id = ?1

-- name: answer
-- What is kept under a scope.
SELECT scope, body_digest, response, stored_at_ms FROM answers WHERE scope = ?1

-- name: answer_rows
-- Everything that is kept, by number.
SELECT scope, body_digest, response, stored_at_ms FROM answers ORDER BY answer_no

-- name: answers_kept
-- How many answers were stored after ?1, and when the oldest of them was.
SELECT count(*), min(stored_at_ms) FROM answers WHERE stored_at_ms > ?1
