-- Servers that share the partitions of a ledger.

CREATE TABLE detent.servers (
    process text PRIMARY KEY,
    host text NOT NULL,
    address text NOT NULL,
    certificate bytea NOT NULL,
    proof bytea NOT NULL,
    linked bigint NOT NULL CHECK (linked >= 0),
    renewed_at timestamp with time zone NOT NULL
);

