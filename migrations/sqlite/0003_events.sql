-- What happened in a thread, for watchers: a row per commit that has something
-- to tell. Its events end with number `last`; `threads.next_event` is how many
-- there are. Large values are not repeated here: events name the rows of state,
-- checkpoints and interrupts that hold them. A table with a rowid, unlike the
-- others: rows are appended where the last ones lie, whatever their thread, and
-- the oldest are found without an index of their times.
CREATE TABLE events (
    thread TEXT    NOT NULL REFERENCES threads (thread),
    last   INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    events BLOB    NOT NULL,
    codec  INTEGER NOT NULL DEFAULT 0,
    key_id TEXT,
    PRIMARY KEY (thread, last)
);
