-- Pages of one tenant's jobs and runs, whatever the others have.

CREATE INDEX jobs_by_tenant ON jobs (tenant_id);
CREATE INDEX jobs_ended_by_tenant ON jobs (tenant_id, state) WHERE state = 'FAILED' OR state = 'CANCELED';
CREATE INDEX runs_by_tenant ON runs (tenant_id, started_tick, run_id);
CREATE INDEX runs_by_tenant_status ON runs (tenant_id, status, started_tick, run_id);
