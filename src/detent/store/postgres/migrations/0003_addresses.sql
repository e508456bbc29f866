-- Where the owner of a partition takes requests over HTTP, signed by its key, for the servers that stand by.

ALTER TABLE detent.owners ADD COLUMN address text NOT NULL DEFAULT '';
ALTER TABLE detent.owners ADD COLUMN proof bytea NOT NULL DEFAULT '\x';
