-- The processes that work on this database, each under a name of its own. A
-- clean stop takes its row away; one that is not renewed is shown as lost for a
-- while, then deleted. (`Workers` is a table of the carrier.)
CREATE TABLE processes (
    name        TEXT    NOT NULL PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT    NOT NULL,
    pages       INTEGER NOT NULL,          -- whether it serves API and pages
    kinds       TEXT    NOT NULL,          -- JSON list
    graphs      TEXT,                      -- JSON list, NULL = all
    started_at  INTEGER NOT NULL,
    every       INTEGER NOT NULL,          -- how often it renews its row
    seen_at     INTEGER NOT NULL,
    running     INTEGER NOT NULL,
    waiting     INTEGER NOT NULL,
    done        TEXT    NOT NULL,          -- JSON: numbers since it started
    last_minute TEXT    NOT NULL           -- JSON: numbers of the last minute
) WITHOUT ROWID;

-- Counting by status and flow reads this index alone.
DROP INDEX threads_status;
CREATE INDEX threads_status ON threads (status, created_at, thread, graph);
-- What waits, counted by flow, kind and age. (With the status in it SQLite need not
-- read the points themselves.)
CREATE INDEX interrupts_waiting ON interrupts (graph, kind, asked_at, status) WHERE status = 'open';
