-- Every statement the PostgreSQL store runs, its schema and functions apart. Each block has a name, a line that says what it does,
-- and the statement. The names are those of the SQLite store where both ask the same (a test compares them); what SQLite writes
-- row by row is one call here. `detent.` is the schema of the ledger, put in when the text is read. Texts that are given are
-- bytes, as ids are: a word of our own is compared as `convert_from($1, 'UTF8')`.

-- name: begin_read
-- Opens a read transaction; the first read in it fixes what it sees.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: begin_write
-- Opens a transaction for what does not fit into one call.
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: commit
-- Makes the transaction durable.
COMMIT

-- name: rollback
-- Leaves nothing of the transaction.
ROLLBACK

-- name: create_schema
-- Makes the place of a new ledger, unless it is there already.
CREATE SCHEMA IF NOT EXISTS detent

-- name: schema_objects
-- What a schema holds: nothing, a ledger, or something else.
SELECT relname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1

-- name: temporary_schema
-- Where this session's temporary objects are.
SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = pg_my_temp_schema()

-- name: schema_texts
-- Everything that a schema defines: kind, name and text.
WITH relations AS (
    SELECT pg_class.* FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1
)
SELECT 'relation', relname::text, concat_ws(' ', relkind, relrowsecurity, relhasrules, reloptions)
FROM (SELECT oid, relname, relkind, relrowsecurity, relhasrules, reloptions FROM relations) AS r
UNION ALL
SELECT 'column', relname || '.' || attname,
    concat_ws(' ', attnum, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attstorage)
FROM relations JOIN pg_catalog.pg_attribute ON attrelid = relations.oid WHERE attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint', relname || '.' || conname, pg_get_constraintdef(pg_constraint.oid)
FROM relations JOIN pg_catalog.pg_constraint ON conrelid = relations.oid
UNION ALL
SELECT 'index', relname::text, pg_get_indexdef(oid) FROM relations WHERE relkind = 'i'
UNION ALL
SELECT 'trigger', relname || '.' || tgname, concat(pg_get_triggerdef(pg_trigger.oid), ' ', tgenabled)
FROM relations JOIN pg_catalog.pg_trigger ON tgrelid = relations.oid WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname::text, concat_ws(' ', pg_get_function_arguments(pg_proc.oid), proconfig, prosecdef, prosrc)
FROM pg_catalog.pg_proc JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pronamespace WHERE nspname = $1

-- name: schema_version
-- The version of the ledger's schema, and where the ledger moved to.
SELECT schema_version, moved_to FROM detent.ledger

-- name: set_schema_version
-- Notes that migrations were applied.
UPDATE detent.ledger SET schema_version = $1

-- name: insert_ledger
-- Gives a new ledger its name and its number of partitions.
INSERT INTO detent.ledger (id, schema_version, origin, partitions) VALUES (1, $1, $2, $3)

-- name: insert_partition
-- Makes the empty partitions without an owner.
INSERT INTO detent.partitions (partition, epoch) SELECT number, 0 FROM generate_series(0, $1 - 1) AS number

-- name: settings
-- What durability rests on, and what tells a pooler from a server.
SELECT current_setting('server_version_num')::integer, current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('server_encoding'), pg_backend_pid(),
    pg_is_in_recovery(), current_setting('server_version'), inet_server_addr() IS NOT NULL

-- name: keep_alive
-- Lets the server notice within half a minute that this host is gone, and with it let go of what it holds.
SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '4', false)

-- name: hold
-- Becomes the holder of partition $1 for as long as this connection lasts, unless another connection is.
SELECT pg_try_advisory_lock('detent.partitions'::regclass::oid::bigint::bit(32)::integer, $1)

-- name: holder
-- Who holds partition $1, by its own words if it has said them yet, and for how many milliseconds it has been silent.
SELECT coalesce(host, 'unknown'), coalesce(process, ''), coalesce(socket, ''), held.pid,
    coalesce((1000 * extract(epoch FROM clock_timestamp() - renewed_at))::bigint, 0),
    coalesce(address, ''), coalesce(proof, ''), (SELECT epoch FROM detent.partitions WHERE partition = $1)
FROM pg_catalog.pg_locks AS held LEFT JOIN detent.owners AS own ON own.partition = $1 AND own.backend = held.pid
WHERE locktype = 'advisory' AND granted AND objsubid = 2
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND classid = 'detent.partitions'::regclass AND objid = $1::bigint::oid

-- name: end_holder
-- Ends the connection of a holder that is known to be dead.
SELECT pg_terminate_backend($1)

-- name: set_owner
-- Says who holds partition $1, and for how many seconds it need not say more.
INSERT INTO detent.owners (partition, host, process, socket, backend, renewed_at)
VALUES ($1, $2, $3, $4, pg_backend_pid(), clock_timestamp() + make_interval(secs => $5))
ON CONFLICT (partition) DO UPDATE
SET host = excluded.host, process = excluded.process, socket = excluded.socket, backend = excluded.backend,
    renewed_at = excluded.renewed_at, address = '', proof = ''

-- name: set_address
-- Says where the holder of partition $1 takes requests: at $2, which its key signed with $3.
UPDATE detent.owners SET address = $2, proof = $3 WHERE partition = $1 AND backend = pg_backend_pid()

-- name: renew
-- Says that the owner of partition $1 under epoch $2 still works.
SELECT detent.renew($1, $2)

-- name: holders
-- Which process holds each partition that is held, and for how many milliseconds it has been silent.
SELECT held.objid::bigint, coalesce(process, ''),
    coalesce((1000 * extract(epoch FROM clock_timestamp() - renewed_at))::bigint, 0)
FROM pg_catalog.pg_locks AS held
    LEFT JOIN detent.owners AS own ON own.partition = held.objid::bigint AND own.backend = held.pid
WHERE locktype = 'advisory' AND granted AND objsubid = 2
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND classid = 'detent.partitions'::regclass

-- name: not_synced
-- What this connection writes need not outlive the database server.
SELECT set_config('synchronous_commit', 'off', false)

-- name: renew_server
-- Says that the server process $1 on host $2 works, is connected to at $3 under certificate $4, signed by $5, and is, by the owner under epoch $6.
INSERT INTO detent.servers (process, host, address, certificate, proof, linked, renewed_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
ON CONFLICT (process) DO UPDATE SET linked = excluded.linked, renewed_at = excluded.renewed_at

-- name: forget_servers
-- Removes process $1 from the servers, and those that have been silent for $2 seconds.
DELETE FROM detent.servers WHERE process = $1 OR renewed_at < clock_timestamp() - make_interval(secs => $2)

-- name: servers
-- The servers that have said within $1 milliseconds that they work.
SELECT process, host, address, certificate, proof, linked FROM detent.servers
WHERE renewed_at > clock_timestamp() - make_interval(secs => $1 / 1000.0)

-- name: set_moved
-- Marks the ledger as moved, so that no epoch begins here any more, and deposes the owners that there are.
WITH marked AS (UPDATE detent.ledger SET moved_to = $1 RETURNING id)
UPDATE detent.partitions SET epoch = epoch + 1 WHERE EXISTS (SELECT 1 FROM marked)

-- name: mark_copying
-- Notes that a schema holds an unfinished copy, and of which ledger; $1 is put in when the text is read.
COMMENT ON SCHEMA "detent" IS '$1'

-- name: copying
-- What is noted so about a schema.
SELECT obj_description(oid, 'pg_namespace') FROM pg_catalog.pg_namespace WHERE nspname = $1

-- name: load_batch
-- Keeps a batch of another ledger as it is.
INSERT INTO detent.batches (
    partition, batch_no, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count, first_tick,
    last_tick
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: insert_decisions
-- Keeps the decision records of a batch.
INSERT INTO detent.decisions (partition, batch_no, body) VALUES ($1, $2, $3)

-- name: insert_job_name
-- Gives a job id its number; an id that has one keeps it.
INSERT INTO detent.job_names (job_id) VALUES ($1) ON CONFLICT (job_id) DO NOTHING

-- name: insert_record
-- Appends one record.
INSERT INTO detent.records (partition, "position", batch_no, kind, job_no, run_id, transition_seq, body, evidence)
VALUES ($1, $2, $3, convert_from($4, 'UTF8'), (SELECT job_no FROM detent.job_names WHERE job_id = $5), $6, $7, $8, $9)

-- name: load_job
-- Keeps the row of a job of another ledger as it is; one that is there stays.
INSERT INTO detent.jobs (partition, job_no, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body)
VALUES ($1, (SELECT job_no FROM detent.job_names WHERE job_id = $2), $3, $4, convert_from($5, 'UTF8'), $6, $7, $8, $9, $10)
ON CONFLICT (job_no) DO NOTHING

-- name: upsert_run
-- Makes or replaces the fold of a run.
INSERT INTO detent.runs (partition, run_id, tenant_id, name, status, started_tick, ended_tick, body)
VALUES ($1, $2, $3, $4, convert_from($5, 'UTF8'), $6, $7, $8)
ON CONFLICT (run_id) DO NOTHING

-- name: insert_content
-- Keeps bytes under their digest; bytes that are there stay.
INSERT INTO detent.content (digest, bytes) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING

-- name: erase_content
-- Remembers a digest as erased.
INSERT INTO detent.content (digest, bytes) VALUES ($1, NULL) ON CONFLICT (digest) DO NOTHING

-- name: insert_checkpoint
-- Keeps a kernel checkpoint.
INSERT INTO detent.checkpoints (partition, batch_no, digest, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (partition, batch_no) DO NOTHING

-- name: insert_refusal
-- Adds to the decision log.
INSERT INTO detent.refusals (partition, tick, job_id, code, body) VALUES ($1, $2, $3, convert_from($4, 'UTF8'), $5)

-- name: insert_work
-- Indexes what a job does; a job that is indexed stays as it is.
INSERT INTO detent.work (workspace, execution_key, job_no, label, tick, payload_digest)
VALUES ($1, $2, (SELECT job_no FROM detent.job_names WHERE job_id = $3), $4, $5, $6)
ON CONFLICT (job_no) DO NOTHING

-- name: insert_work_element
-- Indexes what one element of an array does.
INSERT INTO detent.work_elements (job_no, element, execution_key)
VALUES ((SELECT job_no FROM detent.job_names WHERE job_id = $1), $2, $3)
ON CONFLICT DO NOTHING

-- name: insert_label
-- Says what a job is called and which pool it asked for; a job that has a label keeps it.
INSERT INTO detent.job_labels (job_no, workspace, label, pool, payload_mark)
VALUES ((SELECT job_no FROM detent.job_names WHERE job_id = $1), $2, $3, $4, $5)
ON CONFLICT (job_no) DO NOTHING

-- name: upsert_answer
-- Keeps an answer.
INSERT INTO detent.answers (scope, body_digest, response, stored_at_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope) DO NOTHING

-- name: load_tree_head
-- Keeps a tree head of another ledger.
INSERT INTO detent.tree_heads (partition, size, note) VALUES ($1, $2, convert_from($3, 'UTF8'))
ON CONFLICT (partition, size) DO NOTHING

-- name: load_epoch
-- Lets a copy go on from the epoch $1 of partition $2 of its source.
UPDATE detent.partitions SET epoch = $1 WHERE partition = $2

-- name: ledger
-- The ledger's name, its number of partitions, and how many of them there are.
SELECT origin, partitions, (SELECT count(*) FROM detent.partitions) FROM detent.ledger

-- name: take_ownership
-- Raises the epoch, which deposes the owner under the one before.
SELECT detent.take_ownership($1)

-- name: append
-- One commit, whole or not at all.
SELECT detent.append(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46,
    $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68,
    $69
)

-- name: append_refusals
-- Adds to the decision log.
SELECT detent.write_refusals($1, $2, $3, $4, $5, $6)

-- name: append_beside
-- Adds to the work index, to the labels of jobs and to the kept answers.
SELECT detent.write_beside($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)

-- name: insert_tree_head
-- Keeps a signed tree head; one for the same size replaces it, so that a cosigned note can take the plain one's place.
INSERT INTO detent.tree_heads (partition, size, note) VALUES ($1, $2, $3)
ON CONFLICT (partition, size) DO UPDATE SET note = excluded.note

-- name: delete_content
-- Forgets unreferenced content; what was erased stays known.
WITH gone AS (
    DELETE FROM detent.content WHERE digest = ANY ($1::bytea[]) AND bytes IS NOT NULL RETURNING length(bytes) AS size
)
SELECT coalesce(sum(size), 0)::bigint FROM gone

-- name: answered_jobs
-- The jobs that kept answers name, as they stand.
SELECT scope, body FROM detent.answers JOIN detent.job_names ON job_id = response JOIN detent.jobs USING (job_no)

-- name: whole_answers
-- Answers that are kept whole; each may name many jobs.
SELECT scope, response FROM detent.answers WHERE substr(response, 1, 1) = '\x01'::bytea

-- name: delete_answer
-- Forgets some answers.
DELETE FROM detent.answers WHERE scope = ANY ($1::bytea[])

-- name: head
-- Where a partition's log stands: its owner's epoch and what its last batch says.
SELECT partitions.epoch, coalesce(batch_no + 1, 0), coalesce(leaf_hash, decode(repeat('00', 32), 'hex')),
       coalesce(first_position + record_count, 0), coalesce(last_tick, 0)
FROM detent.partitions LEFT JOIN LATERAL (
    SELECT * FROM detent.batches WHERE batches.partition = partitions.partition ORDER BY batch_no DESC LIMIT 1
) AS last ON true
WHERE partitions.partition = $1

-- name: batches
-- Batches of a partition from number $2 up to but not including $3.
SELECT partition, batch_no, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count,
       first_tick, last_tick
FROM detent.batches
WHERE partition = $1 AND batch_no >= $2 AND batch_no < $3
ORDER BY batch_no

-- name: records
-- Records of a partition from position $2 up to but not including $3.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.records LEFT JOIN detent.job_names USING (job_no)
WHERE partition = $1 AND "position" >= $2 AND "position" < $3
ORDER BY partition, "position"

-- name: records_of_job
-- A job's records in the order in which they were appended.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.job_names JOIN detent.records USING (job_no)
WHERE job_id = $1
ORDER BY partition, "position"

-- name: records_of_rare_kind
-- Records of any kind but the two that every job has from position $3 on, through an index that holds only those.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.records LEFT JOIN detent.job_names USING (job_no)
WHERE kind NOT IN ('transition', 'submitted') AND kind = convert_from($2, 'UTF8')
  AND partition = $1 AND "position" >= $3
ORDER BY partition, "position"

-- name: records_of_common_kind
-- Records of a kind that every job has: most of the partition is the answer, so the partition is read through.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.records LEFT JOIN detent.job_names USING (job_no)
WHERE kind = convert_from($2, 'UTF8') AND partition = $1 AND "position" >= $3
ORDER BY partition, "position"

-- name: records_of_run
-- A run's own records and the submissions of its jobs.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.records LEFT JOIN detent.job_names USING (job_no)
WHERE run_id = $1 AND kind <> 'transition'
ORDER BY partition, "position"

-- name: transition
-- The transition of a job that carries a sequence number.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.job_names JOIN detent.records USING (job_no)
WHERE job_id = $1 AND transition_seq = $2

-- name: record_of_run
-- The newest record of kind $2 that a run has of its own. What ended it is found first.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.records LEFT JOIN detent.job_names USING (job_no)
WHERE run_id = $1 AND kind <> 'transition' AND kind = convert_from($2, 'UTF8')
ORDER BY partition DESC, "position" DESC LIMIT 1

-- name: submissions
-- The first records of some jobs.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM detent.job_names JOIN detent.records USING (job_no)
WHERE job_id = ANY ($1::bytea[]) AND transition_seq IS NULL AND kind = 'submitted'

-- name: transitions
-- Some transitions of some jobs, as pairs of an id and a sequence number.
SELECT partition, "position", batch_no, kind, job_id, run_id, transition_seq, body, evidence
FROM unnest($1::bytea[], $2::bigint[]) AS wanted (id, seq) JOIN detent.job_names ON job_id = wanted.id
    JOIN detent.records USING (job_no)
WHERE transition_seq = wanted.seq

-- name: job
-- One job's row.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.job_names JOIN detent.jobs USING (job_no)
WHERE job_id = $1

-- name: jobs_of
-- The rows of some jobs.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.job_names JOIN detent.jobs USING (job_no)
WHERE job_id = ANY ($1::bytea[])

-- name: jobs
-- Jobs by id after $2, at most $3 of them, of one state unless $1 is NULL.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.job_names JOIN detent.jobs USING (job_no)
WHERE job_id > $2 AND ($1::bytea IS NULL OR state = convert_from($1, 'UTF8'))
ORDER BY job_id LIMIT nullif($3, -1)

-- name: jobs_in_state
-- The same for a state in which few jobs stand: found by state, then sorted.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE state = convert_from($1, 'UTF8') AND job_id > $2
ORDER BY job_id LIMIT nullif($3, -1)

-- name: jobs_of_run
-- The same for the jobs of one run.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE run_id = $4 AND job_id > $2 AND ($1::bytea IS NULL OR state = convert_from($1, 'UTF8'))
ORDER BY job_id LIMIT nullif($3, -1)

-- name: recent_jobs
-- Jobs as they were submitted, the newest first, at most $2 of them, of one state unless $1 is NULL.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE $1::bytea IS NULL OR state = convert_from($1, 'UTF8')
ORDER BY jobs.job_no DESC LIMIT nullif($2, -1)

-- name: recent_jobs_in_state
-- The same for a state in which few jobs stand.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE state = convert_from($1, 'UTF8')
ORDER BY jobs.job_no DESC LIMIT nullif($2, -1)

-- name: recent_jobs_of_run
-- The same for the jobs of one run.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE run_id = $3 AND ($1::bytea IS NULL OR state = convert_from($1, 'UTF8'))
ORDER BY jobs.job_no DESC LIMIT nullif($2, -1)

-- name: jobs_page
-- A tenant's jobs numbered below $2 as they were submitted, the newest first, at most $3, of one state unless $4 is NULL.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE tenant_id = $1 AND jobs.job_no < $2 AND ($4::bytea IS NULL OR state = convert_from($4, 'UTF8')) AND $5::bytea IS NULL
ORDER BY jobs.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_page_live
-- The same for a state in which jobs do not stay: few of all tenants are in it.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE state = convert_from($4, 'UTF8') AND jobs.job_no < $2 AND tenant_id = $1 AND $5::bytea IS NULL
ORDER BY jobs.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_page_ended
-- The same for jobs that failed or were cancelled, through an index that holds only those.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE tenant_id = $1 AND state = convert_from($4, 'UTF8') AND (state = 'FAILED' OR state = 'CANCELED') AND jobs.job_no < $2 AND $5::bytea IS NULL
ORDER BY jobs.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_page_of_run
-- The same for the jobs of one run.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE run_id = $5 AND jobs.job_no < $2 AND tenant_id = $1 AND ($4::bytea IS NULL OR state = convert_from($4, 'UTF8'))
ORDER BY jobs.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_page_labelled
-- The same for the jobs under one label.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM detent.job_labels JOIN detent.jobs USING (job_no) JOIN detent.job_names USING (job_no)
WHERE label = $5 AND workspace = $1 AND job_labels.job_no < $2 AND tenant_id = $1
    AND ($4::bytea IS NULL OR state = convert_from($4, 'UTF8'))
ORDER BY job_labels.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_page_in_pool
-- The same for the jobs that asked for one pool.
SELECT job_no, partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM detent.job_labels JOIN detent.jobs USING (job_no) JOIN detent.job_names USING (job_no)
WHERE pool = $5 AND workspace = $1 AND job_labels.job_no < $2 AND tenant_id = $1
    AND ($4::bytea IS NULL OR state = convert_from($4, 'UTF8'))
ORDER BY job_labels.job_no DESC LIMIT nullif($3, -1)

-- name: jobs_prefixed
-- A tenant's jobs whose ids are from $2 up to $3 and behind $4, by id, at most $5.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body, transition_seq
FROM detent.job_names JOIN detent.jobs USING (job_no)
WHERE job_id >= $2 AND job_id < $3 AND job_id > $4 AND tenant_id = $1
ORDER BY job_id LIMIT nullif($5, -1)

-- name: runs_prefixed
-- The same for runs.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE run_id >= $2 AND run_id < $3 AND run_id > $4 AND tenant_id = $1
ORDER BY run_id LIMIT nullif($5, -1)

-- name: last_run_prefixed
-- The last, by id, of a tenant's runs whose ids begin so: from $2 up to but not including $3.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE run_id >= $2 AND run_id < $3 AND tenant_id = $1
ORDER BY run_id DESC LIMIT 1

-- name: tenant_job_counts
-- How many jobs of each tenant are in each state.
SELECT tenant_id, state, count(*) FROM detent.jobs GROUP BY tenant_id, state

-- name: tenant_run_counts
-- How many runs of each tenant have each status.
SELECT tenant_id, status, count(*) FROM detent.runs GROUP BY tenant_id, status

-- name: runs_page
-- A tenant's runs before tick $2 and id $3, the newest first, at most $4; $5 is unused.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE tenant_id = $1 AND (started_tick, run_id) < ($2, $3) AND $5::bytea IS NULL
ORDER BY started_tick DESC, run_id DESC LIMIT nullif($4, -1)

-- name: runs_page_of_status
-- The same for one status.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE tenant_id = $1 AND status = convert_from($5, 'UTF8') AND (started_tick, run_id) < ($2, $3)
ORDER BY started_tick DESC, run_id DESC LIMIT nullif($4, -1)

-- name: job_heads
-- Every job's place in the canonical log, by the bytes of its id.
SELECT job_id, transition_seq, head FROM detent.job_names JOIN detent.jobs USING (job_no) ORDER BY job_id

-- name: job_heads_of_run
-- The same for the jobs of one run.
SELECT job_id, transition_seq, head
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE run_id = $1
ORDER BY job_id

-- name: job_counts
-- How many jobs are in each state; reads the index of states, never a job.
SELECT state, count(*) FROM detent.jobs GROUP BY state ORDER BY state

-- name: run
-- One run's row.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body FROM detent.runs WHERE run_id = $1

-- name: runs
-- Runs, or those of status $2, the newest first, at most $1 of them.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE $2::bytea IS NULL OR status = convert_from($2, 'UTF8')
ORDER BY started_tick DESC, run_id DESC LIMIT nullif($1, -1)

-- name: runs_open
-- Runs that have not ended, the newest first, at most $1 of them, through an index that holds only those.
SELECT partition, run_id, tenant_id, name, status, started_tick, ended_tick, body
FROM detent.runs
WHERE status = 'running'
ORDER BY started_tick DESC, run_id DESC LIMIT nullif($1, -1)

-- name: content
-- The bytes under a digest; NULL when they were erased.
SELECT bytes FROM detent.content WHERE digest = $1

-- name: contents
-- The bytes under some digests, as far as they are still there.
SELECT digest, bytes FROM detent.content WHERE digest = ANY ($1::bytea[]) AND bytes IS NOT NULL

-- name: content_digests
-- Digest and size of everything that is still there.
SELECT digest, length(bytes) FROM detent.content WHERE bytes IS NOT NULL ORDER BY digest

-- name: is_erased
-- One row when the digest is known as erased.
SELECT 1 FROM detent.content WHERE digest = $1 AND bytes IS NULL

-- name: erased_digests
-- Every digest known as erased.
SELECT digest FROM detent.content WHERE bytes IS NULL ORDER BY digest

-- name: decisions
-- Decision records of a partition's batches from number $2 up to but not including $3.
SELECT partition, batch_no, body
FROM detent.decisions
WHERE partition = $1 AND batch_no >= $2 AND batch_no < $3
ORDER BY batch_no

-- name: checkpoints
-- A partition's checkpoints, the newest first.
SELECT partition, batch_no, digest, body FROM detent.checkpoints WHERE partition = $1 ORDER BY batch_no DESC

-- name: tree_heads
-- A partition's tree heads, the newest first.
SELECT partition, size, note FROM detent.tree_heads WHERE partition = $1 ORDER BY size DESC

-- name: refusals
-- The newest refusals first, at most $2 of them, of one job unless $1 is NULL. The log is bounded, so it is read through.
SELECT partition, tick, job_id, code, body
FROM detent.refusals
WHERE $1::bytea IS NULL OR job_id = $1
ORDER BY refusal_no DESC LIMIT nullif($2, -1)

-- name: work
-- The jobs that do a piece of work, by their numbers.
SELECT work.job_no, workspace, execution_key, job_id, label, tick, payload_digest, NULL::bigint
FROM detent.work JOIN detent.job_names USING (job_no)
WHERE execution_key = $2 AND workspace = $1
ORDER BY work.job_no

-- name: work_in_elements
-- The elements of arrays that do a piece of work, by the numbers of their jobs.
SELECT work.job_no, workspace, work_elements.execution_key, job_id, label, tick, payload_digest, element
FROM detent.work_elements JOIN detent.work USING (job_no) JOIN detent.job_names USING (job_no)
WHERE work_elements.execution_key = $2 AND workspace = $1
ORDER BY work_elements.job_no, work_elements.element

-- name: work_of_keys
-- The jobs that do any of some pieces of work, with their rows, by their numbers.
SELECT work.job_no, workspace, execution_key, job_id, label, work.tick, payload_digest, NULL::bigint,
    jobs.partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM detent.work JOIN detent.job_names USING (job_no) JOIN detent.jobs USING (job_no)
WHERE execution_key = ANY ($2::bytea[]) AND workspace = $1
ORDER BY work.job_no

-- name: work_of_keys_in_elements
-- The elements of arrays that do any of some pieces of work, with the rows of their jobs, by the numbers of these.
SELECT work.job_no, workspace, work_elements.execution_key, job_id, label, work.tick, payload_digest, element,
    jobs.partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM detent.work_elements JOIN detent.work USING (job_no) JOIN detent.job_names USING (job_no)
    JOIN detent.jobs USING (job_no)
WHERE work_elements.execution_key = ANY ($2::bytea[]) AND workspace = $1
ORDER BY work.job_no, element

-- name: work_labelled
-- The jobs under a label, the newest first, at most $3 of them.
SELECT workspace, execution_key, job_id, label, tick, payload_digest, NULL::bigint
FROM detent.work JOIN detent.job_names USING (job_no)
WHERE label = $2 AND workspace = $1
ORDER BY work.job_no DESC LIMIT nullif($3, -1)

-- name: work_rows
-- The whole index, by the numbers of the jobs; a row whose number no job has stays visible under an empty name.
SELECT workspace, execution_key, coalesce(job_id, ''::bytea) AS job_id, label, tick, payload_digest, NULL::bigint
FROM detent.work LEFT JOIN detent.job_names USING (job_no)
ORDER BY work.job_no

-- name: label
-- What a job is called and which pool it asked for.
SELECT job_id, workspace, label, pool, payload_mark
FROM detent.job_names JOIN detent.job_labels USING (job_no)
WHERE job_id = $1

-- name: label_rows
-- The same for all jobs, by their numbers.
SELECT job_id, workspace, label, pool, payload_mark
FROM detent.job_labels JOIN detent.job_names USING (job_no)
ORDER BY job_labels.job_no

-- name: work_element_rows
-- The keys of all elements of arrays, by the numbers of their jobs; a row of no job stays visible under an empty name.
SELECT coalesce(job_id, ''::bytea) AS job_id, element, execution_key
FROM detent.work_elements LEFT JOIN detent.job_names USING (job_no)
ORDER BY work_elements.job_no, element

-- name: jobs_outside_work
-- Jobs without a row in the index, by their numbers.
SELECT partition, job_id, tenant_id, run_id, state, transition_seq, attempt_id, head, jobs.tick, body, transition_seq
FROM detent.jobs JOIN detent.job_names USING (job_no)
WHERE NOT EXISTS (SELECT 1 FROM detent.work WHERE work.job_no = jobs.job_no)
ORDER BY jobs.job_no

-- name: labels_of_run
-- The labels of what the jobs of a run do, some of them more than once.
SELECT label
FROM detent.jobs JOIN detent.work USING (job_no)
WHERE run_id = $1

-- name: answer
-- What is kept under a scope.
SELECT scope, body_digest, response, stored_at_ms FROM detent.answers WHERE scope = $1

-- name: answer_rows
-- Everything that is kept, by number.
SELECT scope, body_digest, response, stored_at_ms FROM detent.answers ORDER BY answer_no

-- name: answers_kept
-- How many answers were stored after $1, and when the oldest of them was.
SELECT count(*), min(stored_at_ms) FROM detent.answers WHERE stored_at_ms > $1
