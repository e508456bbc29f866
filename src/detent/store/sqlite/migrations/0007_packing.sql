-- What stored records have in common, and signatures that several messages share. What is stored already stays as it is.

CREATE TABLE shapes (
    shape_no INTEGER PRIMARY KEY CHECK (shape_no BETWEEN 1 AND 16383),
    body BLOB NOT NULL CHECK (length(body) BETWEEN 1 AND 4096)
) STRICT;

CREATE TABLE signatures (
    signature_no INTEGER PRIMARY KEY CHECK (signature_no BETWEEN 1 AND 4294967295),
    body BLOB NOT NULL CHECK (length(body) >= 100 AND length(body) % 32 = 4)
) STRICT;

CREATE TRIGGER shapes_are_never_updated BEFORE UPDATE ON shapes BEGIN
    SELECT RAISE(ABORT, 'shapes are append-only');
END;
CREATE TRIGGER shapes_are_never_deleted BEFORE DELETE ON shapes BEGIN
    SELECT RAISE(ABORT, 'shapes are append-only');
END;
CREATE TRIGGER signatures_are_never_updated BEFORE UPDATE ON signatures BEGIN
    SELECT RAISE(ABORT, 'signatures are append-only');
END;
CREATE TRIGGER signatures_are_never_deleted BEFORE DELETE ON signatures BEGIN
    SELECT RAISE(ABORT, 'signatures are append-only');
END;
