-- Threads that are started by the clock. Not thread data: a schedule is there
-- before its threads and after them.
CREATE TABLE schedules (
    schedule     TEXT    NOT NULL PRIMARY KEY,       -- its name
    graph        TEXT    NOT NULL,
    input        BLOB    NOT NULL,
    codec        INTEGER NOT NULL DEFAULT 0,
    key_id       TEXT,
    expression   TEXT    NOT NULL,                   -- cron, five fields
    zone         TEXT    NOT NULL,                   -- of the IANA database
    catch_up     TEXT    NOT NULL CHECK (catch_up IN ('newest', 'all')),
    catch_within INTEGER NOT NULL,                   -- how late a tick may be, in microseconds
    jitter       INTEGER NOT NULL,                   -- in microseconds
    paused       INTEGER NOT NULL DEFAULT 0,
    next_tick    INTEGER NOT NULL,                   -- the instant of the next tick
    next_at      INTEGER NOT NULL,                   -- when it comes: with its jitter
    last_tick    INTEGER,
    last_thread  TEXT,
    last_error   TEXT,
    changed_at   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE NOT paused;

-- A row for each tick that came, so that it comes once, whoever finds it.
CREATE TABLE ticks (
    schedule TEXT    NOT NULL,
    instant  INTEGER NOT NULL,
    thread   TEXT    NOT NULL,                       -- what it started
    by_hand  TEXT,                                   -- who had it come before its time
    came_at  INTEGER NOT NULL,
    PRIMARY KEY (schedule, instant)
) WITHOUT ROWID;
