-- The thread comes first in every key of thread data, so that the schema
-- distributes by thread. Times are microseconds since the epoch, UTC, from the
-- injected clock. Payloads are bytes with a codec (0 = plain JSON) and the id
-- of the key they are sealed with (NULL = not sealed).

CREATE TABLE threads (
    thread           TEXT    NOT NULL PRIMARY KEY,
    graph            TEXT    NOT NULL,
    graph_version    INTEGER NOT NULL,
    fingerprint      TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN
                         ('queued', 'running', 'parked', 'held', 'succeeded', 'failed', 'cancelled')),
    salt             BLOB    NOT NULL,
    input_hash       TEXT    NOT NULL,
    started_by       TEXT    NOT NULL,
    head             TEXT    NOT NULL,               -- newest checkpoint
    head_seq         INTEGER NOT NULL,
    branch           INTEGER NOT NULL DEFAULT 0,     -- line of checkpoints the head is on
    open             INTEGER NOT NULL DEFAULT 0,     -- open points
    failed_tasks     INTEGER NOT NULL DEFAULT 0,
    error            TEXT,
    held_reason      TEXT,
    fence            INTEGER NOT NULL DEFAULT 0,     -- rises with every claim; every write carries it
    lease_owner      TEXT,
    lease_until      INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,     -- claims since the last progress
    not_before       INTEGER NOT NULL DEFAULT 0,     -- backoff after a lost worker
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    pause_requested  INTEGER NOT NULL DEFAULT 0,
    next_answer      INTEGER NOT NULL DEFAULT 0,     -- insertion order of answers
    next_event       INTEGER NOT NULL DEFAULT 0,     -- one event sequence per thread
    audit_seq        INTEGER NOT NULL DEFAULT 0,
    audit_head       BLOB    NOT NULL DEFAULT x'',
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX threads_created ON threads (created_at, thread);
CREATE INDEX threads_status ON threads (status, created_at, thread);
CREATE INDEX threads_graph ON threads (graph, created_at, thread);
-- What a sweep looks for: work that is due and leases that lapsed.
CREATE INDEX threads_due ON threads (updated_at) WHERE status IN ('queued', 'running');

CREATE TABLE runs (
    thread      TEXT    NOT NULL REFERENCES threads (thread),
    run         TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('start', 'resume', 'replay', 'fork')),
    status      TEXT    NOT NULL CHECK (status IN
                    ('queued', 'running', 'parked', 'held', 'succeeded', 'failed', 'cancelled')),
    requested_by TEXT   NOT NULL,
    resume      TEXT    NOT NULL DEFAULT '{}',       -- the parts of a resume that name no point
    taken       INTEGER NOT NULL DEFAULT 0,          -- whether an activation took it up
    created_at  INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (thread, run)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    thread        TEXT    NOT NULL REFERENCES threads (thread),
    frame         TEXT    NOT NULL DEFAULT '',       -- '' is the root frame
    seq           INTEGER NOT NULL,
    checkpoint    TEXT    NOT NULL,
    parent        TEXT,
    branch        INTEGER NOT NULL,
    source        TEXT    NOT NULL CHECK (source IN ('input', 'loop', 'update', 'fork')),
    superstep     INTEGER NOT NULL,
    graph_version INTEGER NOT NULL,
    fingerprint   TEXT    NOT NULL,
    body          BLOB    NOT NULL,                  -- planned tasks, arrivals at joins, border points
    keys          BLOB    NOT NULL,                  -- which rows hold the state at this checkpoint
    codec         INTEGER NOT NULL DEFAULT 0,
    key_id        TEXT,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (thread, frame, seq)
) WITHOUT ROWID;

-- Keys whose value is replaced: a row per change.
CREATE TABLE state_values (
    thread TEXT    NOT NULL REFERENCES threads (thread),
    frame  TEXT    NOT NULL DEFAULT '',
    key    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,                         -- the checkpoint that wrote it
    value  BLOB    NOT NULL,
    codec  INTEGER NOT NULL DEFAULT 0,
    key_id TEXT,
    PRIMARY KEY (thread, frame, key, seq)
) WITHOUT ROWID;

-- Append-only keys: a row per item, no copies.
CREATE TABLE state_items (
    thread   TEXT    NOT NULL REFERENCES threads (thread),
    frame    TEXT    NOT NULL DEFAULT '',
    key      TEXT    NOT NULL,
    branch   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    value    BLOB    NOT NULL,
    codec    INTEGER NOT NULL DEFAULT 0,
    key_id   TEXT,
    PRIMARY KEY (thread, frame, key, branch, position)
) WITHOUT ROWID;

-- Records of the tasks of unfinished supersteps: pending writes, questions,
-- private state.
CREATE TABLE tasks (
    thread TEXT    NOT NULL REFERENCES threads (thread),
    frame  TEXT    NOT NULL DEFAULT '',
    seq    INTEGER NOT NULL,
    task   TEXT    NOT NULL,
    status TEXT    NOT NULL CHECK (status IN ('pending', 'waiting', 'done', 'failed')),
    record BLOB    NOT NULL,
    codec  INTEGER NOT NULL DEFAULT 0,
    key_id TEXT,
    PRIMARY KEY (thread, frame, seq, task)
) WITHOUT ROWID;

-- Results of named steps and of finished batch slots.
CREATE TABLE steps (
    thread      TEXT    NOT NULL REFERENCES threads (thread),
    frame       TEXT    NOT NULL DEFAULT '',
    seq         INTEGER NOT NULL,
    occurrence  TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    result      BLOB    NOT NULL,
    codec       INTEGER NOT NULL DEFAULT 0,
    key_id      TEXT,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (thread, frame, seq, occurrence, name)
) WITHOUT ROWID;

-- A projection of the checkpoints, for queries.
CREATE TABLE interrupts (
    thread    TEXT    NOT NULL REFERENCES threads (thread),
    id        TEXT    NOT NULL,
    frame     TEXT    NOT NULL DEFAULT '',
    seq       INTEGER NOT NULL,
    graph     TEXT    NOT NULL,
    address   TEXT    NOT NULL,                      -- as people read it
    number    INTEGER NOT NULL,
    kind      TEXT    NOT NULL,                      -- approval, input, … or interrupt, suspend, break, pause
    status    TEXT    NOT NULL CHECK (status IN ('open', 'answered', 'released', 'superseded', 'withdrawn')),
    payload   BLOB    NOT NULL,
    codec     INTEGER NOT NULL DEFAULT 0,
    key_id    TEXT,
    deadline  INTEGER,
    asked_at  INTEGER NOT NULL,
    closed_at INTEGER,
    PRIMARY KEY (thread, id)
) WITHOUT ROWID;
CREATE INDEX interrupts_id ON interrupts (id);
CREATE INDEX interrupts_open ON interrupts (status, asked_at, id);

-- What people see of an interrupt.
CREATE TABLE requests (
    thread       TEXT    NOT NULL,
    interrupt    TEXT    NOT NULL,
    revision     INTEGER NOT NULL,
    content_hash TEXT    NOT NULL,
    have         INTEGER NOT NULL DEFAULT 0,
    need         INTEGER NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('open', 'decided', 'closed')),
    PRIMARY KEY (thread, interrupt),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;

CREATE TABLE request_approvers (
    thread    TEXT    NOT NULL,
    interrupt TEXT    NOT NULL,
    approver  TEXT    NOT NULL,                      -- person:…, role:… or service:…
    open      INTEGER NOT NULL DEFAULT 1,
    asked_at  INTEGER NOT NULL,
    PRIMARY KEY (thread, interrupt, approver),
    FOREIGN KEY (thread, interrupt) REFERENCES requests (thread, interrupt)
) WITHOUT ROWID;
CREATE INDEX request_approvers_open ON request_approvers (approver, open, asked_at, interrupt);

CREATE TABLE votes (
    thread     TEXT    NOT NULL,
    interrupt  TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    value      BLOB    NOT NULL,
    codec      INTEGER NOT NULL DEFAULT 0,
    key_id     TEXT,
    channel    TEXT    NOT NULL,                     -- api, link, page
    identified TEXT    NOT NULL,                     -- how: token, link, session
    voted_at   INTEGER NOT NULL,
    PRIMARY KEY (thread, interrupt, principal),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;

-- The durable inbox of a thread: unique per interrupt, consumed in order.
CREATE TABLE answers (
    thread      TEXT    NOT NULL,
    interrupt   TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    answered    BLOB    NOT NULL,                    -- value, by, at
    codec       INTEGER NOT NULL DEFAULT 0,
    key_id      TEXT,
    accepted_at INTEGER NOT NULL,
    consumed_by INTEGER,                             -- fence of the activation that ran it
    PRIMARY KEY (thread, interrupt),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;
CREATE INDEX answers_unconsumed ON answers (thread, position) WHERE consumed_by IS NULL;

CREATE TABLE deliveries (
    thread          TEXT    NOT NULL,
    delivery        TEXT    NOT NULL,
    interrupt       TEXT    NOT NULL,
    channel         TEXT    NOT NULL,
    principal       TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    address         TEXT    NOT NULL,
    occasion        TEXT    NOT NULL,
    status          TEXT    NOT NULL CHECK (status IN ('pending', 'sending', 'sent', 'failed', 'skipped')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    taken_until     INTEGER NOT NULL DEFAULT 0,
    possibly_twice  INTEGER NOT NULL DEFAULT 0,      -- a sender died after it may have handed over
    detail          TEXT,                            -- the other side's word, or the last error
    created_at      INTEGER NOT NULL,
    finished_at     INTEGER,
    PRIMARY KEY (thread, delivery),
    UNIQUE (thread, interrupt, principal, channel, occasion),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE status IN ('pending', 'sending');
CREATE INDEX deliveries_status ON deliveries (status, created_at);

-- Work that gave up, until somebody looks.
CREATE TABLE dead_letters (
    thread   TEXT    NOT NULL REFERENCES threads (thread),
    id       TEXT    NOT NULL,
    kind     TEXT    NOT NULL CHECK (kind IN ('advance', 'deliver')),
    subject  TEXT,                                   -- the delivery
    reason   TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    died_at  INTEGER NOT NULL,
    PRIMARY KEY (thread, id)
) WITHOUT ROWID;
CREATE INDEX dead_letters_time ON dead_letters (died_at);

-- One hash chain per thread. The digests are what is chained, so that the
-- personal fields beside them can be erased.
CREATE TABLE audit (
    thread        TEXT    NOT NULL REFERENCES threads (thread),
    seq           INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    action        TEXT    NOT NULL,
    actor         TEXT,
    actor_digest  BLOB    NOT NULL,
    detail        TEXT,
    detail_digest BLOB    NOT NULL,
    hash          BLOB    NOT NULL,
    PRIMARY KEY (thread, seq)
) WITHOUT ROWID;

-- Not thread data.

CREATE TABLE idempotency (
    scope        TEXT    NOT NULL,                   -- principal and route
    key          TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    status       INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE api_tokens (
    name       TEXT    NOT NULL PRIMARY KEY,
    hash       TEXT    NOT NULL UNIQUE,              -- SHA-256 of the token
    scopes     TEXT    NOT NULL,                     -- JSON list
    graphs     TEXT,                                 -- JSON list, NULL = all
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) WITHOUT ROWID;
