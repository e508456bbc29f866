-- Leases of owners: when each was last renewed, by this server's clock.

ALTER TABLE detent.owners ADD COLUMN backend integer NOT NULL DEFAULT 0;
ALTER TABLE detent.owners ADD COLUMN renewed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp();

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
