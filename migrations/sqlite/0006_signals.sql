-- Events from outside that a flow waits for by name. One that comes before
-- anybody waits is kept; each is taken once, by one point, in the order in
-- which they came.
CREATE TABLE signals (
    thread    TEXT    NOT NULL REFERENCES threads (thread),
    position  INTEGER NOT NULL,                      -- order of arrival
    name      TEXT    NOT NULL,
    payload   BLOB    NOT NULL,
    codec     INTEGER NOT NULL DEFAULT 0,
    key_id    TEXT,
    sent_by   TEXT    NOT NULL,
    sent_at   INTEGER NOT NULL,
    interrupt TEXT,                                  -- the point that took it; NULL while it is kept
    PRIMARY KEY (thread, position),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;
CREATE INDEX signals_kept ON signals (thread, name, position) WHERE interrupt IS NULL;
