-- What happened in a thread, for watchers: a row per commit that has something
-- to tell. Its events end with number `last`; `threads.next_event` is how many
-- there are. Large values are not repeated here: events name the rows of state,
-- checkpoints and interrupts that hold them. The oldest are found by an index
-- that holds a range of times for each group of pages: rows lie in the order
-- they were written.
CREATE TABLE events (
    thread TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    last   BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    events BYTEA    NOT NULL,
    codec  BIGINT NOT NULL DEFAULT 0,
    key_id TEXT COLLATE "C",
    PRIMARY KEY (thread, last)
);
CREATE INDEX events_at ON events USING brin (at);
