-- Messages that a Redis is to carry, one row each until its work is done. Not
-- thread data: as with the carrier's job rows, losing all of them loses nothing.
CREATE TABLE outbox (
    id         TEXT    NOT NULL PRIMARY KEY,           -- the job's id, a ULID
    thread     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    subject    TEXT,                                   -- the delivery
    run_at     INTEGER NOT NULL,                       -- not to be relayed before
    created_at INTEGER NOT NULL,
    relayed_at INTEGER                                 -- NULL = not yet
) WITHOUT ROWID;
CREATE INDEX outbox_unrelayed ON outbox (kind, run_at, id) WHERE relayed_at IS NULL;
