-- Events from outside that a flow waits for by name. One that comes before
-- anybody waits is kept; each is taken once, by one point, in the order in
-- which they came.
CREATE TABLE signals (
    thread    TEXT COLLATE "C" NOT NULL REFERENCES threads (thread),
    position  BIGINT NOT NULL,                       -- order of arrival
    name      TEXT COLLATE "C" NOT NULL,
    payload   BYTEA NOT NULL,
    codec     BIGINT NOT NULL DEFAULT 0,
    key_id    TEXT COLLATE "C",
    sent_by   TEXT COLLATE "C" NOT NULL,
    sent_at   BIGINT NOT NULL,
    interrupt TEXT COLLATE "C",                      -- the point that took it; NULL while it is kept
    PRIMARY KEY (thread, position),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);
CREATE INDEX signals_kept ON signals (thread, name, position) WHERE interrupt IS NULL;
