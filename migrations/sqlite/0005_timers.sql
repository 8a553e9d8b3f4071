-- Instants that points wait for. A timer is set in the transaction that opens
-- its point and dropped in the one that closes it; a due one is fired once, by
-- whichever process finds it, in the transaction that also writes what follows.
CREATE TABLE timers (
    thread    TEXT    NOT NULL,
    interrupt TEXT    NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('sleep', 'deadline', 'reminder')),
    due_at    INTEGER NOT NULL,
    status    TEXT    NOT NULL DEFAULT 'set' CHECK (status IN ('set', 'fired', 'dropped')),
    fired     INTEGER NOT NULL DEFAULT 0,            -- how often
    PRIMARY KEY (thread, interrupt, kind),
    FOREIGN KEY (thread, interrupt) REFERENCES interrupts (thread, id)
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due_at) WHERE status = 'set';
