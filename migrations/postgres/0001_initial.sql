-- The same as on SQLite, by number and name. Texts compare by their bytes, as
-- they do there, whatever the database's own collation is.
--
-- The thread comes first in every key of thread data, so that the schema
-- distributes by thread. Times are microseconds since the epoch, UTC, from the
-- injected clock. Payloads are bytes with a codec (0 = plain JSON) and the id
-- of the key they are sealed with (NULL = not sealed).

CREATE TABLE threads (
    thread           TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    graph            TEXT COLLATE "C"    NOT NULL,
    graph_version    BIGINT NOT NULL,
    fingerprint      TEXT COLLATE "C"    NOT NULL,
    status           TEXT COLLATE "C"    NOT NULL CHECK (status IN
                         ('queued', 'running', 'parked', 'held', 'succeeded', 'failed', 'cancelled')),
    salt             BYTEA    NOT NULL,
    input_hash       TEXT COLLATE "C"    NOT NULL,
    started_by       TEXT COLLATE "C"    NOT NULL,
    head             TEXT COLLATE "C"    NOT NULL,               -- newest checkpoint
    head_seq         BIGINT NOT NULL,
    branch           BIGINT NOT NULL DEFAULT 0,     -- line of checkpoints the head is on
    open             BIGINT NOT NULL DEFAULT 0,     -- open points
    failed_tasks     BIGINT NOT NULL DEFAULT 0,
    error            TEXT COLLATE "C",
    held_reason      TEXT COLLATE "C",
    fence            BIGINT NOT NULL DEFAULT 0,     -- rises with every claim; every write carries it
    lease_owner      TEXT COLLATE "C",
    lease_until      BIGINT NOT NULL DEFAULT 0,
    attempts         BIGINT NOT NULL DEFAULT 0,     -- claims since the last progress
    not_before       BIGINT NOT NULL DEFAULT 0,     -- backoff after a lost worker
    cancel_requested BOOLEAN NOT NULL DEFAULT false,
    pause_requested  BOOLEAN NOT NULL DEFAULT false,
    next_answer      BIGINT NOT NULL DEFAULT 0,     -- insertion order of answers
    next_event       BIGINT NOT NULL DEFAULT 0,     -- one event sequence per thread
    audit_seq        BIGINT NOT NULL DEFAULT 0,
    audit_head       BYTEA    NOT NULL DEFAULT '',
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);
CREATE INDEX threads_created ON threads (created_at, thread);
CREATE INDEX threads_status ON threads (status, created_at, thread);
CREATE INDEX threads_graph ON threads (graph, created_at, thread);
-- What a sweep looks for: work that is due and leases that lapsed.
CREATE INDEX threads_due ON threads (updated_at) WHERE status IN ('queued', 'running');

CREATE TABLE runs (
    thread      TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    run         TEXT COLLATE "C"    NOT NULL,
    kind        TEXT COLLATE "C"    NOT NULL CHECK (kind IN ('start', 'resume', 'replay', 'fork')),
    status      TEXT COLLATE "C"    NOT NULL CHECK (status IN
                    ('queued', 'running', 'parked', 'held', 'succeeded', 'failed', 'cancelled')),
    requested_by TEXT COLLATE "C"   NOT NULL,
    resume      TEXT COLLATE "C"    NOT NULL DEFAULT '{}',       -- the parts of a resume that name no point
    taken       BOOLEAN NOT NULL DEFAULT false,          -- whether an activation took it up
    created_at  BIGINT NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (thread, run)
);

CREATE TABLE checkpoints (
    thread        TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame         TEXT COLLATE "C"    NOT NULL DEFAULT '',       -- '' is the root frame
    seq           BIGINT NOT NULL,
    checkpoint    TEXT COLLATE "C"    NOT NULL,
    parent        TEXT COLLATE "C",
    branch        BIGINT NOT NULL,
    source        TEXT COLLATE "C"    NOT NULL CHECK (source IN ('input', 'loop', 'update', 'fork')),
    superstep     BIGINT NOT NULL,
    graph_version BIGINT NOT NULL,
    fingerprint   TEXT COLLATE "C"    NOT NULL,
    body          BYTEA    NOT NULL,                  -- planned tasks, arrivals at joins, border points
    keys          BYTEA    NOT NULL,                  -- which rows hold the state at this checkpoint
    codec         BIGINT NOT NULL DEFAULT 0,
    key_id        TEXT COLLATE "C",
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (thread, frame, seq)
);

-- Keys whose value is replaced: a row per change.
CREATE TABLE state_values (
    thread TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame  TEXT COLLATE "C"    NOT NULL DEFAULT '',
    key    TEXT COLLATE "C"    NOT NULL,
    seq    BIGINT NOT NULL,                         -- the checkpoint that wrote it
    value  BYTEA    NOT NULL,
    codec  BIGINT NOT NULL DEFAULT 0,
    key_id TEXT COLLATE "C",
    PRIMARY KEY (thread, frame, key, seq)
);

-- Append-only keys: a row per item, no copies.
CREATE TABLE state_items (
    thread   TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame    TEXT COLLATE "C"    NOT NULL DEFAULT '',
    key      TEXT COLLATE "C"    NOT NULL,
    branch   BIGINT NOT NULL,
    position BIGINT NOT NULL,
    value    BYTEA    NOT NULL,
    codec    BIGINT NOT NULL DEFAULT 0,
    key_id   TEXT COLLATE "C",
    PRIMARY KEY (thread, frame, key, branch, position)
);

-- Records of the tasks of unfinished supersteps: pending writes, questions,
-- private state.
CREATE TABLE tasks (
    thread TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame  TEXT COLLATE "C"    NOT NULL DEFAULT '',
    seq    BIGINT NOT NULL,
    task   TEXT COLLATE "C"    NOT NULL,
    status TEXT COLLATE "C"    NOT NULL CHECK (status IN ('pending', 'waiting', 'done', 'failed')),
    record BYTEA    NOT NULL,
    codec  BIGINT NOT NULL DEFAULT 0,
    key_id TEXT COLLATE "C",
    PRIMARY KEY (thread, frame, seq, task)
);

-- Results of named steps and of finished batch slots.
CREATE TABLE steps (
    thread      TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame       TEXT COLLATE "C"    NOT NULL DEFAULT '',
    seq         BIGINT NOT NULL,
    occurrence  TEXT COLLATE "C"    NOT NULL,
    name        TEXT COLLATE "C"    NOT NULL,
    result      BYTEA    NOT NULL,
    codec       BIGINT NOT NULL DEFAULT 0,
    key_id      TEXT COLLATE "C",
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (thread, frame, seq, occurrence, name)
);

-- A projection of the checkpoints, for queries.
CREATE TABLE interrupts (
    thread    TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    id        TEXT COLLATE "C"    NOT NULL,
    frame     TEXT COLLATE "C"    NOT NULL DEFAULT '',
    seq       BIGINT NOT NULL,
    graph     TEXT COLLATE "C"    NOT NULL,
    address   TEXT COLLATE "C"    NOT NULL,                      -- as people read it
    number    BIGINT NOT NULL,
    kind      TEXT COLLATE "C"    NOT NULL,                      -- approval, input, … or interrupt, suspend, break, pause
    status    TEXT COLLATE "C"    NOT NULL CHECK (status IN ('open', 'answered', 'released', 'superseded', 'withdrawn')),
    payload   BYTEA    NOT NULL,
    codec     BIGINT NOT NULL DEFAULT 0,
    key_id    TEXT COLLATE "C",
    deadline  BIGINT,
    asked_at  BIGINT NOT NULL,
    closed_at BIGINT,
    PRIMARY KEY (thread, id)
);
CREATE INDEX interrupts_id ON interrupts (id);
CREATE INDEX interrupts_open ON interrupts (status, asked_at, id);

-- What people see of an interrupt.
CREATE TABLE requests (
    thread       TEXT COLLATE "C"    NOT NULL,
    interrupt    TEXT COLLATE "C"    NOT NULL,
    revision     BIGINT NOT NULL,
    content_hash TEXT COLLATE "C"    NOT NULL,
    have         BIGINT NOT NULL DEFAULT 0,
    need         BIGINT NOT NULL,
    status       TEXT COLLATE "C"    NOT NULL CHECK (status IN ('open', 'decided', 'closed')),
    PRIMARY KEY (thread, interrupt),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);

CREATE TABLE request_approvers (
    thread    TEXT COLLATE "C"    NOT NULL,
    interrupt TEXT COLLATE "C"    NOT NULL,
    approver  TEXT COLLATE "C"    NOT NULL,                      -- person:…, role:… or service:…
    open      BOOLEAN NOT NULL DEFAULT true,
    asked_at  BIGINT NOT NULL,
    PRIMARY KEY (thread, interrupt, approver),
    FOREIGN KEY (thread, interrupt) REFERENCES requests (thread, interrupt)
);
CREATE INDEX request_approvers_open ON request_approvers (approver, open, asked_at, interrupt);

CREATE TABLE votes (
    thread     TEXT COLLATE "C"    NOT NULL,
    interrupt  TEXT COLLATE "C"    NOT NULL,
    principal  TEXT COLLATE "C"    NOT NULL,
    revision   BIGINT NOT NULL,
    value      BYTEA    NOT NULL,
    codec      BIGINT NOT NULL DEFAULT 0,
    key_id     TEXT COLLATE "C",
    channel    TEXT COLLATE "C"    NOT NULL,                     -- api, link, page
    identified TEXT COLLATE "C"    NOT NULL,                     -- how: token, link, session
    voted_at   BIGINT NOT NULL,
    PRIMARY KEY (thread, interrupt, principal),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);

-- The durable inbox of a thread: unique per interrupt, consumed in order.
CREATE TABLE answers (
    thread      TEXT COLLATE "C"    NOT NULL,
    interrupt   TEXT COLLATE "C"    NOT NULL,
    position    BIGINT NOT NULL,
    answered    BYTEA    NOT NULL,                    -- value, by, at
    codec       BIGINT NOT NULL DEFAULT 0,
    key_id      TEXT COLLATE "C",
    accepted_at BIGINT NOT NULL,
    consumed_by BIGINT,                             -- fence of the activation that ran it
    PRIMARY KEY (thread, interrupt),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);
CREATE INDEX answers_unconsumed ON answers (thread, position) WHERE consumed_by IS NULL;

CREATE TABLE deliveries (
    thread          TEXT COLLATE "C"    NOT NULL,
    delivery        TEXT COLLATE "C"    NOT NULL,
    interrupt       TEXT COLLATE "C"    NOT NULL,
    channel         TEXT COLLATE "C"    NOT NULL,
    principal       TEXT COLLATE "C"    NOT NULL,
    name            TEXT COLLATE "C"    NOT NULL,
    address         TEXT COLLATE "C"    NOT NULL,
    occasion        TEXT COLLATE "C"    NOT NULL,
    status          TEXT COLLATE "C"    NOT NULL CHECK (status IN ('pending', 'sending', 'sent', 'failed', 'skipped')),
    attempts        BIGINT NOT NULL DEFAULT 0,
    next_attempt_at BIGINT NOT NULL,
    taken_until     BIGINT NOT NULL DEFAULT 0,
    possibly_twice  BOOLEAN NOT NULL DEFAULT false,      -- a sender died after it may have handed over
    detail          TEXT COLLATE "C",                            -- the other side's word, or the last error
    created_at      BIGINT NOT NULL,
    finished_at     BIGINT,
    PRIMARY KEY (thread, delivery),
    UNIQUE (thread, interrupt, principal, channel, occasion),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE status IN ('pending', 'sending');
CREATE INDEX deliveries_status ON deliveries (status, created_at);

-- Work that gave up, until somebody looks.
CREATE TABLE dead_letters (
    thread   TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    id       TEXT COLLATE "C"    NOT NULL,
    kind     TEXT COLLATE "C"    NOT NULL CHECK (kind IN ('advance', 'deliver')),
    subject  TEXT COLLATE "C",                                   -- the delivery
    reason   TEXT COLLATE "C"    NOT NULL,
    attempts BIGINT NOT NULL,
    died_at  BIGINT NOT NULL,
    PRIMARY KEY (thread, id)
);
CREATE INDEX dead_letters_time ON dead_letters (died_at);

-- One hash chain per thread. The digests are what is chained, so that the
-- personal fields beside them can be erased.
CREATE TABLE audit (
    thread        TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    seq           BIGINT NOT NULL,
    at            BIGINT NOT NULL,
    action        TEXT COLLATE "C"    NOT NULL,
    actor         TEXT COLLATE "C",
    actor_digest  BYTEA    NOT NULL,
    detail        TEXT COLLATE "C",
    detail_digest BYTEA    NOT NULL,
    hash          BYTEA    NOT NULL,
    PRIMARY KEY (thread, seq)
);

-- Not thread data.

CREATE TABLE idempotency (
    scope        TEXT COLLATE "C"    NOT NULL,                   -- principal and route
    key          TEXT COLLATE "C"    NOT NULL,
    request_hash TEXT COLLATE "C"    NOT NULL,
    status       BIGINT NOT NULL,
    body         TEXT COLLATE "C"    NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE api_tokens (
    name       TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    hash       TEXT COLLATE "C"    NOT NULL UNIQUE,              -- SHA-256 of the token
    scopes     TEXT COLLATE "C"    NOT NULL,                     -- JSON list
    graphs     TEXT COLLATE "C",                                 -- JSON list, NULL = all
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
