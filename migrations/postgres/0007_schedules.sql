-- Threads that are started by the clock. Not thread data: a schedule is there
-- before its threads and after them.
CREATE TABLE schedules (
    schedule     TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- its name
    graph        TEXT COLLATE "C" NOT NULL,
    input        BYTEA  NOT NULL,
    codec        BIGINT NOT NULL DEFAULT 0,
    key_id       TEXT COLLATE "C",
    expression   TEXT COLLATE "C" NOT NULL,          -- cron, five fields
    zone         TEXT COLLATE "C" NOT NULL,          -- of the IANA database
    catch_up     TEXT COLLATE "C" NOT NULL CHECK (catch_up IN ('newest', 'all')),
    catch_within BIGINT NOT NULL,                    -- how late a tick may be, in microseconds
    jitter       BIGINT NOT NULL,                    -- in microseconds
    paused       BOOLEAN NOT NULL DEFAULT false,
    next_tick    BIGINT NOT NULL,                    -- the instant of the next tick
    next_at      BIGINT NOT NULL,                    -- when it comes: with its jitter
    last_tick    BIGINT,
    last_thread  TEXT COLLATE "C",
    last_error   TEXT COLLATE "C",
    changed_at   BIGINT NOT NULL
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE NOT paused;

-- A row for each tick that came, so that it comes once, whoever finds it.
CREATE TABLE ticks (
    schedule TEXT COLLATE "C" NOT NULL,
    instant  BIGINT NOT NULL,
    thread   TEXT COLLATE "C" NOT NULL,              -- what it started
    by_hand  TEXT COLLATE "C",                       -- who had it come before its time
    came_at  BIGINT NOT NULL,
    PRIMARY KEY (schedule, instant)
);
