-- A label for every job, and the pool that it asked for, beside the ledger. Of jobs that are stored already, those in the index of work
-- have one from there, unless their payload was erased. No table of the ledger changes.

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

INSERT INTO detent.job_labels (job_no, workspace, label, payload_mark)
SELECT job_no, workspace, label, substr(payload_digest, 1, 8) FROM detent.work
WHERE NOT EXISTS (SELECT 1 FROM detent.content WHERE digest = payload_digest AND bytes IS NULL);

DROP FUNCTION detent.append(
    integer, bigint, bigint, bytea, bytea, bytea, bytea, bytea, bigint, bigint, bigint, bigint, bytea, text[],
    bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bigint, bigint, bytea[], bytea[], bytea[], text[],
    bigint[], bigint[], bytea[], bigint[], bytea[], bigint[], bytea[], bytea[], bytea[], bytea[], bytea[], text[],
    bigint[], bigint[], bytea[], bytea[], integer[], bigint[], bytea[], text[], bytea[], bigint, bigint, bytea, bytea,
    bigint, bigint, text, bytea[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bigint[], bytea[], bytea[],
    bytea[], bytea[], bigint[], bigint
);

DROP FUNCTION detent.write_beside(
    bytea[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bytea[],
    bigint[], bigint
);

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
