-- Runs that have not ended are looked for whenever something begins, and they are few among many.

CREATE INDEX runs_open ON runs (started_tick, run_id) WHERE status = 'running';
