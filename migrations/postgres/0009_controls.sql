-- Flow control: in which order threads are taken up, how many at a time, and
-- what is paused.

ALTER TABLE threads
    ADD COLUMN priority BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN limit_key TEXT COLLATE "C",                  -- those of a flow with the same key are limited together
    ADD COLUMN counted BOOLEAN NOT NULL DEFAULT false,      -- whether its lease takes a place under a limit
    ADD COLUMN held_back TEXT COLLATE "C",                  -- behind which switch or limit a queued thread stands
    ADD COLUMN turn BIGINT NOT NULL DEFAULT 0,              -- its place there: lower goes first
    ADD COLUMN cancel_asked_at BIGINT;

-- A point of priority is worth a minute of waiting. What is held back is found
-- by what holds it back.
DROP INDEX threads_due;
CREATE INDEX threads_due ON threads ((updated_at - 60000000 * priority))
    WHERE status IN ('queued', 'running') AND held_back IS NULL;
CREATE INDEX threads_held_back ON threads (held_back, turn, thread) WHERE held_back IS NOT NULL;
CREATE INDEX threads_counted ON threads (graph, limit_key) WHERE counted AND lease_owner IS NOT NULL;
CREATE INDEX threads_cancelling ON threads (lease_owner) WHERE cancel_requested AND lease_owner IS NOT NULL;

-- Not thread data.

-- What an operator has paused: a flow, a node of one, a channel.
CREATE TABLE pause_switches (
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('graph', 'node', 'channel')),
    name       TEXT COLLATE "C" NOT NULL,           -- the flow's or the channel's
    node       TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason     TEXT COLLATE "C" NOT NULL,
    paused_by  TEXT COLLATE "C" NOT NULL,
    since      BIGINT NOT NULL,
    ends_at    BIGINT,                              -- by itself; NULL = when somebody resumes it
    PRIMARY KEY (kind, name, node)
);

-- How many threads of a flow may run, or begin to in a period of microseconds:
-- all together, and those of each key. NULL = as many as there are.
CREATE TABLE flow_limits (
    graph       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    running     BIGINT,
    key_running BIGINT,
    starts      BIGINT,
    period      BIGINT,
    key_starts  BIGINT,
    key_period  BIGINT,
    set_by      TEXT COLLATE "C" NOT NULL,
    set_at      BIGINT NOT NULL
);

-- From when on the bucket of starts is full again; the key '' is the flow itself.
CREATE TABLE flow_rates (
    graph   TEXT COLLATE "C" NOT NULL REFERENCES flow_limits (graph) ON DELETE CASCADE,
    key     TEXT COLLATE "C" NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (graph, key)
);

-- What operators did that is about no single thread.
CREATE TABLE operations (
    id     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    detail TEXT COLLATE "C" NOT NULL
);
CREATE INDEX operations_time ON operations (at, id);
