-- The present whole of a ledger in PostgreSQL. `detent.` stands for the schema of the ledger, whatever that is called: every name
-- is qualified, because a pooler can drop a search path. A new ledger is made from this file; an older one reaches the same
-- shape through migrations/, and a test builds both and compares.
--
-- * What users name (ids, tenants, labels, names) is bytea, the UTF-8 bytes: text cannot hold U+0000 and sorts by locale, while
--   the order of bytes is the canonical one (X-050). Words of our own (kind, state, status, code) are text.
-- * Each job id is turned once into a number (job_names), so that what happens together lies together in the indexes.
-- * Nothing is packed: PostgreSQL compresses what is long by itself (decision 0037).

CREATE TABLE detent.ledger (
    id integer PRIMARY KEY CHECK (id = 1),
    schema_version integer NOT NULL CHECK (schema_version > 0),
    origin text NOT NULL CHECK (length(origin) > 0),
    partitions integer NOT NULL CHECK (partitions BETWEEN 1 AND 65536),
    -- Where the ledger lives now, once it was moved: no epoch begins here any more.
    moved_to text CHECK (length(moved_to) > 0)
);

-- Who owns each partition. Everything else about it can be read off its last batch, so it is not written twice.
CREATE TABLE detent.partitions (
    partition integer PRIMARY KEY CHECK (partition >= 0),
    epoch bigint NOT NULL CHECK (epoch >= 0)
) WITH (fillfactor = 50);

-- Which process holds each partition, for messages and for clients that look for its socket, and until when its silence counts
-- as work. The lock and the epoch decide.
CREATE TABLE detent.owners (
    partition integer PRIMARY KEY CHECK (partition >= 0),
    host text NOT NULL,
    process text NOT NULL,
    socket text NOT NULL,
    -- The server's process that the holder writes through: a row of an earlier holder says nothing about the present one.
    backend integer NOT NULL DEFAULT 0,
    renewed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    -- Where it takes requests over HTTP, and its key's signature of that: a row that anyone else wrote sends no request anywhere.
    address text NOT NULL DEFAULT '',
    proof bytea NOT NULL DEFAULT '\x'
);

-- The servers that share the partitions: where each is connected to by the one that leads, under which certificate, signed by a
-- key of the ledger, and the epoch of the first partition whose owner is connected to it now. A row that is not renewed counts for nothing.
CREATE TABLE detent.servers (
    process text PRIMARY KEY,
    host text NOT NULL,
    address text NOT NULL,
    certificate bytea NOT NULL,
    proof bytea NOT NULL,
    linked bigint NOT NULL CHECK (linked >= 0),
    renewed_at timestamp with time zone NOT NULL
);

CREATE TABLE detent.batches (
    partition integer NOT NULL CHECK (partition >= 0),
    batch_no bigint NOT NULL CHECK (batch_no >= 0),
    epoch bigint NOT NULL CHECK (epoch > 0),
    body bytea NOT NULL CHECK (length(body) > 0),
    signature bytea NOT NULL CHECK (length(signature) = 64),
    leaf_hash bytea NOT NULL CHECK (length(leaf_hash) = 32),
    nodes bytea NOT NULL CHECK (length(nodes) % 32 = 0),
    commands bytea NOT NULL,
    first_position bigint NOT NULL CHECK (first_position >= 0),
    record_count bigint NOT NULL CHECK (record_count >= 0),
    first_tick bigint NOT NULL CHECK (first_tick >= 0),
    last_tick bigint NOT NULL CHECK (last_tick >= first_tick),
    PRIMARY KEY (partition, batch_no)
);

-- The decision records of each commit in one piece: their digests are in the signed records, so nothing else names them.
CREATE TABLE detent.decisions (
    partition integer NOT NULL CHECK (partition >= 0),
    batch_no bigint NOT NULL CHECK (batch_no >= 0),
    body bytea NOT NULL CHECK (length(body) > 0),
    PRIMARY KEY (partition, batch_no)
);

CREATE TABLE detent.job_names (
    job_no bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    job_id bytea NOT NULL UNIQUE CHECK (length(job_id) > 0)
);

-- The kinds are not listed in a CHECK: later parts bring kinds of their own.
CREATE TABLE detent.records (
    partition integer NOT NULL CHECK (partition >= 0),
    "position" bigint NOT NULL CHECK ("position" >= 0),
    batch_no bigint NOT NULL CHECK (batch_no >= 0),
    kind text NOT NULL CHECK (length(kind) > 0),
    job_no bigint,
    run_id bytea CHECK (length(run_id) > 0),
    transition_seq bigint CHECK (transition_seq >= 0),
    body bytea NOT NULL CHECK (length(body) BETWEEN 1 AND 61440),
    evidence bytea,
    PRIMARY KEY (partition, "position"),
    CHECK ((kind = 'transition') = (transition_seq IS NOT NULL)),
    CHECK (kind NOT IN ('transition', 'submitted') OR job_no IS NOT NULL)
);

-- Unique where there is a sequence number, that is among transitions (NULLs differ from each other); and the way to all
-- records of one job.
CREATE UNIQUE INDEX records_by_job ON detent.records (job_no, transition_seq) WHERE job_no IS NOT NULL;
CREATE INDEX records_by_run ON detent.records (run_id, partition, "position")
    WHERE run_id IS NOT NULL AND kind <> 'transition';
CREATE INDEX records_by_rare_kind ON detent.records (kind, partition, "position")
    WHERE kind NOT IN ('transition', 'submitted');

CREATE TABLE detent.jobs (
    job_no bigint PRIMARY KEY,
    partition integer NOT NULL CHECK (partition >= 0),
    tenant_id bytea NOT NULL CHECK (length(tenant_id) > 0),
    run_id bytea CHECK (length(run_id) > 0),
    state text NOT NULL CHECK (state IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'RETRYING', 'FAILED', 'CANCELED')),
    transition_seq bigint NOT NULL CHECK (transition_seq >= 0),
    attempt_id bigint NOT NULL CHECK (attempt_id >= 0),
    head bytea NOT NULL CHECK (length(head) = 32),
    tick bigint NOT NULL CHECK (tick >= 0),
    body bytea NOT NULL
);

CREATE INDEX jobs_by_run ON detent.jobs (run_id, job_no) WHERE run_id IS NOT NULL;
CREATE INDEX jobs_by_state ON detent.jobs (state, job_no);
CREATE INDEX jobs_by_tenant ON detent.jobs (tenant_id, job_no);
CREATE INDEX jobs_ended_by_tenant ON detent.jobs (tenant_id, state, job_no) WHERE state IN ('FAILED', 'CANCELED');

CREATE TABLE detent.runs (
    run_id bytea PRIMARY KEY CHECK (length(run_id) > 0),
    partition integer NOT NULL CHECK (partition >= 0),
    tenant_id bytea NOT NULL CHECK (length(tenant_id) > 0),
    name bytea NOT NULL,
    status text NOT NULL CHECK (length(status) > 0),
    started_tick bigint NOT NULL CHECK (started_tick >= 0),
    ended_tick bigint CHECK (ended_tick >= started_tick),
    body bytea NOT NULL
);

CREATE INDEX runs_by_start ON detent.runs (started_tick, run_id);
CREATE INDEX runs_open ON detent.runs (started_tick, run_id) WHERE status = 'running';
CREATE INDEX runs_by_tenant ON detent.runs (tenant_id, started_tick, run_id);
CREATE INDEX runs_by_tenant_status ON detent.runs (tenant_id, status, started_tick, run_id);

-- Bytes NULL: the content was erased, and the digest stays known as erased. Not compressed: digests and signatures do not get smaller.
CREATE TABLE detent.content (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    bytes bytea CHECK (length(bytes) <= 16384)
);

CREATE INDEX content_erased ON detent.content (digest) WHERE bytes IS NULL;

CREATE TABLE detent.checkpoints (
    partition integer NOT NULL CHECK (partition >= 0),
    batch_no bigint NOT NULL CHECK (batch_no >= 0),
    digest bytea NOT NULL CHECK (length(digest) = 32),
    body bytea NOT NULL,
    PRIMARY KEY (partition, batch_no)
);

CREATE TABLE detent.tree_heads (
    partition integer NOT NULL CHECK (partition >= 0),
    size bigint NOT NULL CHECK (size > 0),
    note text NOT NULL CHECK (length(note) > 0),
    PRIMARY KEY (partition, size)
);

CREATE TABLE detent.refusals (
    refusal_no bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    partition integer NOT NULL CHECK (partition >= 0),
    tick bigint NOT NULL CHECK (tick >= 0),
    job_id bytea CHECK (length(job_id) > 0),
    code text NOT NULL CHECK (length(code) > 0),
    body bytea NOT NULL
);

-- Which job did which work. Keyed by the job's number, so that rows are found in the order of submission. Not part of the
-- ledger: a row goes with the payload it was made from, which is what the last index is for.
CREATE TABLE detent.work (
    job_no bigint PRIMARY KEY,
    workspace bytea NOT NULL CHECK (length(workspace) > 0),
    execution_key bytea NOT NULL CHECK (length(execution_key) = 32),
    label bytea NOT NULL CHECK (length(label) > 0),
    tick bigint NOT NULL CHECK (tick >= 0),
    payload_digest bytea NOT NULL CHECK (length(payload_digest) = 32)
);

CREATE INDEX work_by_key ON detent.work (execution_key, workspace, job_no);
CREATE INDEX work_by_label ON detent.work (label, workspace, job_no);
CREATE INDEX work_by_payload ON detent.work (payload_digest);

-- Which element of an array did which work.
CREATE TABLE detent.work_elements (
    execution_key bytea NOT NULL CHECK (length(execution_key) = 32),
    job_no bigint NOT NULL,
    element bigint NOT NULL CHECK (element >= 0),
    PRIMARY KEY (execution_key, job_no, element)
);

CREATE UNIQUE INDEX work_elements_by_job ON detent.work_elements (job_no, element);

-- What each job is called and which pool it asked for, to be listed by. Not part of the ledger: a row goes with the payload that
-- said so, which is found by the first bytes of its digest.
CREATE TABLE detent.job_labels (
    job_no bigint PRIMARY KEY,
    workspace bytea NOT NULL CHECK (length(workspace) > 0),
    label bytea NOT NULL CHECK (length(label) > 0),
    pool bytea CHECK (length(pool) > 0),
    payload_mark bytea NOT NULL CHECK (length(payload_mark) = 8)
);

CREATE INDEX job_labels_by_label ON detent.job_labels (label, workspace, job_no);
CREATE INDEX job_labels_by_pool ON detent.job_labels (pool, workspace, job_no) WHERE pool IS NOT NULL;
CREATE INDEX job_labels_by_payload ON detent.job_labels (payload_mark);

-- What clients' idempotency keys were answered.
CREATE TABLE detent.answers (
    answer_no bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    scope bytea NOT NULL UNIQUE CHECK (length(scope) = 32),
    body_digest bytea NOT NULL CHECK (length(body_digest) = 32),
    response bytea NOT NULL CHECK (length(response) <= 65536),
    stored_at_ms bigint NOT NULL CHECK (stored_at_ms >= 0)
);

CREATE INDEX answers_by_time ON detent.answers (stored_at_ms);

-- History is appended to and never rewritten (PIPE-057). A superuser can drop these; the signatures and hashes reveal that.
CREATE FUNCTION detent.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% are append-only', TG_TABLE_NAME USING ERRCODE = 'DT002';
END
$$;

CREATE TRIGGER batches_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON detent.batches
    FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse_change();
CREATE TRIGGER decisions_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON detent.decisions
    FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse_change();
CREATE TRIGGER records_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON detent.records
    FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse_change();

-- Raises the epoch, which deposes the owner under the one before. Waits for an append that is under way.
CREATE FUNCTION detent.take_ownership(p integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    raised bigint;
    gone text;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
    UPDATE detent.partitions SET epoch = epoch + 1 WHERE partition = p RETURNING epoch INTO raised;
    IF raised IS NULL THEN
        RAISE EXCEPTION 'the ledger has no row for partition %', p USING ERRCODE = 'DT002';
    END IF;
    SELECT moved_to INTO gone FROM detent.ledger;
    IF gone IS NOT NULL THEN
        RAISE EXCEPTION '%', gone USING ERRCODE = 'DT004';
    END IF;
    RETURN raised;
END
$$;

-- Says that the owner under an epoch still works; false once another owner has deposed it. The clock is this server's alone, so
-- that no two machines have to agree on the time. A renewal need not be durable: with the server every owner's connection ends.
CREATE FUNCTION detent.renew(p integer, e bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE detent.owners SET renewed_at = clock_timestamp()
    WHERE partition = p AND backend = pg_backend_pid()
        AND EXISTS (SELECT 1 FROM detent.partitions AS own WHERE own.partition = p AND own.epoch = e);
    RETURN FOUND;
END
$$;

CREATE FUNCTION detent.write_refusals(
    f_partition integer[], f_tick bigint[], f_job bytea[], f_code text[], f_body bytea[], f_kept bigint
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO detent.refusals (partition, tick, job_id, code, body)
    SELECT * FROM unnest(f_partition, f_tick, f_job, f_code, f_body);
    DELETE FROM detent.refusals
    WHERE refusal_no <= (SELECT refusal_no FROM detent.refusals ORDER BY refusal_no DESC OFFSET f_kept LIMIT 1);
$$;

-- Adds to the work index, to the labels of jobs and to the kept answers. A job that is indexed stays as it is, with its elements; an
-- answer that still counts stays, too. Work that is never reused comes with an empty key: it has a label alone.
CREATE FUNCTION detent.write_beside(
    w_workspace bytea[], w_key bytea[], w_job bytea[], w_label bytea[], w_tick bigint[], w_payload bytea[], w_pool bytea[],
    e_job bytea[], e_element bigint[], e_key bytea[],
    a_scope bytea[], a_digest bytea[], a_response bytea[], a_stored bigint[], a_kept bigint
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF w_job IS NOT NULL THEN
        INSERT INTO detent.job_labels (job_no, workspace, label, pool, payload_mark)
        SELECT (SELECT job_no FROM detent.job_names n WHERE n.job_id = w.job_id), workspace, label, pool, substr(payload, 1, 8)
        FROM unnest(w_workspace, w_job, w_label, w_payload, w_pool) AS w (workspace, job_id, label, payload, pool)
        ON CONFLICT (job_no) DO NOTHING;
        WITH fresh AS (
            INSERT INTO detent.work (job_no, workspace, execution_key, label, tick, payload_digest)
            SELECT (SELECT job_no FROM detent.job_names n WHERE n.job_id = w.job_id), workspace, key, label, tick, payload
            FROM unnest(w_workspace, w_key, w_job, w_label, w_tick, w_payload)
                AS w (workspace, key, job_id, label, tick, payload)
            WHERE key <> ''
            ON CONFLICT (job_no) DO NOTHING
            RETURNING job_no
        )
        INSERT INTO detent.work_elements (execution_key, job_no, element)
        SELECT e.key, n.job_no, e.element
        FROM unnest(e_job, e_element, e_key) AS e (job_id, element, key)
        JOIN detent.job_names n ON n.job_id = e.job_id
        WHERE n.job_no IN (SELECT job_no FROM fresh);
    END IF;
    IF a_scope IS NOT NULL THEN
        FOR place IN 1 .. cardinality(a_scope) LOOP
            INSERT INTO detent.answers AS kept (scope, body_digest, response, stored_at_ms)
            VALUES (a_scope[place], a_digest[place], a_response[place], a_stored[place])
            ON CONFLICT (scope) DO UPDATE
            SET body_digest = excluded.body_digest, response = excluded.response, stored_at_ms = excluded.stored_at_ms
            WHERE kept.stored_at_ms <= excluded.stored_at_ms - a_kept;
        END LOOP;
        DELETE FROM detent.answers WHERE stored_at_ms <= (SELECT min(stored) FROM unnest(a_stored) AS stored) - a_kept;
    END IF;
END
$$;

-- One commit, whole or not at all: one call is one statement and one transaction, and holds no lock over a round trip. What the
-- owner believes about its partition is the first thing compared, under a lock that a new owner's epoch waits for (X-172).
-- Plans are made once for a session: to plan each call anew doubled the time of a commit of one record. So the planner may not choose one
-- that suits the small tables of a new ledger: it would be kept while they grow.
CREATE FUNCTION detent.append(
    b_partition integer, b_no bigint, b_epoch bigint, b_body bytea, b_signature bytea, b_leaf bytea, b_nodes bytea,
    b_commands bytea, b_first bigint, b_count bigint, b_first_tick bigint, b_last_tick bigint, b_decisions bytea,
    r_kind text[], r_job bytea[], r_run bytea[], r_seq bigint[], r_body bytea[], r_evidence bytea[],
    n_job bytea[],
    j_new bigint, j_moved bigint, j_job bytea[], j_tenant bytea[], j_run bytea[], j_state text[], j_seq bigint[],
    j_attempt bigint[], j_head bytea[], j_tick bigint[], j_body bytea[], j_expected bigint[],
    c_digest bytea[], c_bytes bytea[],
    u_run bytea[], u_tenant bytea[], u_name bytea[], u_status text[], u_started bigint[], u_ended bigint[], u_body bytea[],
    x_erased bytea[],
    f_partition integer[], f_tick bigint[], f_job bytea[], f_code text[], f_body bytea[], f_kept bigint,
    k_batch_no bigint, k_digest bytea, k_body bytea, k_kept bigint,
    h_size bigint, h_note text,
    w_workspace bytea[], w_key bytea[], w_job bytea[], w_label bytea[], w_tick bigint[], w_payload bytea[], w_pool bytea[],
    e_job bytea[], e_element bigint[], e_key bytea[],
    a_scope bytea[], a_digest bytea[], a_response bytea[], a_stored bigint[], a_kept bigint
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now_epoch bigint;
    last_no bigint;
    next_position bigint;
    ended_tick bigint;
    changed bigint;
BEGIN
    -- A SET clause of the function would be over before the commit is; this holds until it is durable.
    PERFORM set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');

    SELECT epoch INTO now_epoch FROM detent.partitions WHERE partition = b_partition FOR UPDATE;
    SELECT batch_no, first_position + record_count, last_tick INTO last_no, next_position, ended_tick
    FROM detent.batches WHERE partition = b_partition ORDER BY batch_no DESC LIMIT 1;
    IF now_epoch IS NULL THEN
        RAISE EXCEPTION 'the ledger has no row for partition %', b_partition USING ERRCODE = 'DT002';
    END IF;
    IF b_epoch <> now_epoch OR b_no <> coalesce(last_no + 1, 0) THEN
        RAISE EXCEPTION 'batch % of epoch %, where partition % stands at batch % of epoch %',
            b_no, b_epoch, b_partition, coalesce(last_no + 1, 0), now_epoch USING ERRCODE = 'DT001';
    END IF;
    IF b_first <> coalesce(next_position, 0) OR b_first_tick < coalesce(ended_tick, 0) THEN
        RAISE EXCEPTION 'batch % starts at position % and tick %, not at % and from % on',
            b_no, b_first, b_first_tick, coalesce(next_position, 0), coalesce(ended_tick, 0) USING ERRCODE = 'DT002';
    END IF;

    INSERT INTO detent.batches (
        partition, batch_no, epoch, body, signature, leaf_hash, nodes, commands, first_position, record_count, first_tick,
        last_tick
    ) VALUES (
        b_partition, b_no, b_epoch, b_body, b_signature, b_leaf, b_nodes, b_commands, b_first, b_count, b_first_tick,
        b_last_tick
    );
    IF b_decisions IS NOT NULL THEN
        INSERT INTO detent.decisions (partition, batch_no, body) VALUES (b_partition, b_no, b_decisions);
    END IF;
    IF n_job IS NOT NULL THEN
        INSERT INTO detent.job_names (job_id) SELECT unnest(n_job) ON CONFLICT (job_id) DO NOTHING;
    END IF;
    IF r_kind IS NOT NULL THEN
        INSERT INTO detent.records (
            partition, "position", batch_no, kind, job_no, run_id, transition_seq, body, evidence
        )
        SELECT b_partition, b_first + place - 1, b_no, kind,
            (SELECT job_no FROM detent.job_names n WHERE n.job_id = r.job_id), run_id, seq, body, evidence
        FROM unnest(r_kind, r_job, r_run, r_seq, r_body, r_evidence) WITH ORDINALITY
            AS r (kind, job_id, run_id, seq, body, evidence, place);
    END IF;
    IF j_new > 0 THEN
        INSERT INTO detent.jobs (
            job_no, partition, tenant_id, run_id, state, transition_seq, attempt_id, head, tick, body
        )
        SELECT (SELECT job_no FROM detent.job_names n WHERE n.job_id = j.job_id), b_partition, tenant_id, run_id, state,
            seq, attempt, head, tick, body
        FROM unnest(j_job, j_tenant, j_run, j_state, j_seq, j_attempt, j_head, j_tick, j_body, j_expected)
            AS j (job_id, tenant_id, run_id, state, seq, attempt, head, tick, body, expected)
        WHERE expected < 0;
    END IF;
    IF j_moved > 0 THEN
        UPDATE detent.jobs AS job
        SET state = j.state, transition_seq = j.seq, attempt_id = j.attempt, head = j.head, tick = j.tick, body = j.body
        FROM (
            SELECT *, (SELECT job_no FROM detent.job_names n WHERE n.job_id = moved.job_id) AS number
            FROM unnest(j_job, j_tenant, j_run, j_state, j_seq, j_attempt, j_head, j_tick, j_body, j_expected)
                AS moved (job_id, tenant_id, run_id, state, seq, attempt, head, tick, body, expected)
            OFFSET 0
        ) AS j
        WHERE job.job_no = j.number AND job.transition_seq = j.expected AND j.expected >= 0
            AND job.partition = b_partition AND job.tenant_id = j.tenant_id AND job.run_id IS NOT DISTINCT FROM j.run_id;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed <> j_moved THEN
            RAISE EXCEPTION '% of % jobs are no longer where the writer saw them', j_moved - changed, j_moved
                USING ERRCODE = 'DT001';
        END IF;
    END IF;
    IF c_digest IS NOT NULL THEN
        INSERT INTO detent.content AS kept (digest, bytes) SELECT * FROM unnest(c_digest, c_bytes)
        ON CONFLICT (digest) DO UPDATE SET bytes = excluded.bytes WHERE kept.bytes IS NULL;
    END IF;
    IF u_run IS NOT NULL THEN
        INSERT INTO detent.runs AS run (run_id, partition, tenant_id, name, status, started_tick, ended_tick, body)
        SELECT u.run_id, b_partition, u.tenant_id, u.name, u.status, u.started, u.ended, u.body
        FROM unnest(u_run, u_tenant, u_name, u_status, u_started, u_ended, u_body)
            AS u (run_id, tenant_id, name, status, started, ended, body)
        ON CONFLICT (run_id) DO UPDATE
        SET partition = excluded.partition, tenant_id = excluded.tenant_id, name = excluded.name,
            status = excluded.status, started_tick = excluded.started_tick, ended_tick = excluded.ended_tick,
            body = excluded.body;
    END IF;
    IF w_job IS NOT NULL OR a_scope IS NOT NULL THEN
        PERFORM detent.write_beside(
            w_workspace, w_key, w_job, w_label, w_tick, w_payload, w_pool, e_job, e_element, e_key,
            a_scope, a_digest, a_response, a_stored, a_kept
        );
    END IF;
    IF x_erased IS NOT NULL THEN
        INSERT INTO detent.content (digest, bytes) SELECT erased, NULL FROM unnest(x_erased) AS erased
        ON CONFLICT (digest) DO UPDATE SET bytes = NULL;
        DELETE FROM detent.work_elements
        WHERE job_no IN (SELECT job_no FROM detent.work WHERE payload_digest = ANY (x_erased));
        UPDATE detent.work SET execution_key = payload_digest WHERE payload_digest = ANY (x_erased);
        DELETE FROM detent.job_labels
        WHERE payload_mark IN (SELECT substr(erased, 1, 8) FROM unnest(x_erased) AS erased);
    END IF;
    IF f_tick IS NOT NULL THEN
        PERFORM detent.write_refusals(f_partition, f_tick, f_job, f_code, f_body, f_kept);
    END IF;
    IF k_body IS NOT NULL THEN
        INSERT INTO detent.checkpoints (partition, batch_no, digest, body)
        VALUES (b_partition, k_batch_no, k_digest, k_body)
        ON CONFLICT (partition, batch_no) DO UPDATE SET digest = excluded.digest, body = excluded.body;
        DELETE FROM detent.checkpoints
        WHERE partition = b_partition AND batch_no < (
            SELECT min(batch_no) FROM (
                SELECT batch_no FROM detent.checkpoints WHERE partition = b_partition ORDER BY batch_no DESC LIMIT k_kept
            ) AS newest
        );
    END IF;
    IF h_note IS NOT NULL THEN
        INSERT INTO detent.tree_heads (partition, size, note) VALUES (b_partition, h_size, h_note)
        ON CONFLICT (partition, size) DO UPDATE SET note = excluded.note;
    END IF;
END
$$;
