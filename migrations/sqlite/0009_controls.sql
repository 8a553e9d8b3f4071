-- Flow control: in which order threads are taken up, how many at a time, and
-- what is paused.

ALTER TABLE threads ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN limit_key TEXT;                   -- those of a flow with the same key are limited together
ALTER TABLE threads ADD COLUMN counted INTEGER NOT NULL DEFAULT 0; -- whether its lease takes a place under a limit
ALTER TABLE threads ADD COLUMN held_back TEXT;                   -- behind which switch or limit a queued thread stands
ALTER TABLE threads ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;  -- its place there: lower goes first
ALTER TABLE threads ADD COLUMN cancel_asked_at INTEGER;

-- A point of priority is worth a minute of waiting. What is held back is found
-- by what holds it back.
DROP INDEX threads_due;
CREATE INDEX threads_due ON threads (updated_at - 60000000 * priority)
    WHERE status IN ('queued', 'running') AND held_back IS NULL;
CREATE INDEX threads_held_back ON threads (held_back, turn, thread) WHERE held_back IS NOT NULL;
CREATE INDEX threads_counted ON threads (graph, limit_key) WHERE counted AND lease_owner IS NOT NULL;
CREATE INDEX threads_cancelling ON threads (lease_owner) WHERE cancel_requested AND lease_owner IS NOT NULL;

-- Not thread data.

-- What an operator has paused: a flow, a node of one, a channel.
CREATE TABLE pause_switches (
    kind       TEXT    NOT NULL CHECK (kind IN ('graph', 'node', 'channel')),
    name       TEXT    NOT NULL,                     -- the flow's or the channel's
    node       TEXT    NOT NULL DEFAULT '',
    reason     TEXT    NOT NULL,
    paused_by  TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    ends_at    INTEGER,                              -- by itself; NULL = when somebody resumes it
    PRIMARY KEY (kind, name, node)
) WITHOUT ROWID;

-- How many threads of a flow may run, or begin to in a period of microseconds:
-- all together, and those of each key. NULL = as many as there are.
CREATE TABLE flow_limits (
    graph       TEXT    NOT NULL PRIMARY KEY,
    running     INTEGER,
    key_running INTEGER,
    starts      INTEGER,
    period      INTEGER,
    key_starts  INTEGER,
    key_period  INTEGER,
    set_by      TEXT    NOT NULL,
    set_at      INTEGER NOT NULL
) WITHOUT ROWID;

-- From when on the bucket of starts is full again; the key '' is the flow itself.
CREATE TABLE flow_rates (
    graph   TEXT    NOT NULL REFERENCES flow_limits (graph) ON DELETE CASCADE,
    key     TEXT    NOT NULL,
    full_at INTEGER NOT NULL,
    PRIMARY KEY (graph, key)
) WITHOUT ROWID;

-- What operators did that is about no single thread.
CREATE TABLE operations (
    id     TEXT    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    action TEXT    NOT NULL,
    detail TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX operations_time ON operations (at, id);
