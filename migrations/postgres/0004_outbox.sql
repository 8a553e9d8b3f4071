-- Messages that a Redis is to carry, one row each until its work is done. Not
-- thread data: as with the carrier's job rows, losing all of them loses nothing.
CREATE TABLE outbox (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,  -- the job's id, a ULID
    thread     TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C",                       -- the delivery
    run_at     BIGINT NOT NULL,                        -- not to be relayed before
    created_at BIGINT NOT NULL,
    relayed_at BIGINT                                  -- NULL = not yet
);
CREATE INDEX outbox_unrelayed ON outbox (kind, run_at, id) WHERE relayed_at IS NULL;
