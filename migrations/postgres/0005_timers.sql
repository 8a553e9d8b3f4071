-- Instants that points wait for. A timer is set in the transaction that opens
-- its point and dropped in the one that closes it; a due one is fired once, by
-- whichever process finds it, in the transaction that also writes what follows.
CREATE TABLE timers (
    thread    TEXT COLLATE "C" NOT NULL,
    interrupt TEXT COLLATE "C" NOT NULL,
    kind      TEXT COLLATE "C" NOT NULL CHECK (kind IN ('sleep', 'deadline', 'reminder')),
    due_at    BIGINT NOT NULL,
    status    TEXT COLLATE "C" NOT NULL DEFAULT 'set' CHECK (status IN ('set', 'fired', 'dropped')),
    fired     BIGINT NOT NULL DEFAULT 0,             -- how often
    PRIMARY KEY (thread, interrupt, kind),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
);
CREATE INDEX timers_due ON timers (due_at) WHERE status = 'set';
