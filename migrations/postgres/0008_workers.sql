-- The processes that work on this database, each under a name of its own. A
-- clean stop takes its row away; one that is not renewed is shown as lost for a
-- while, then deleted. (`Workers` is a table of the carrier.)
CREATE TABLE processes (
    name        TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    host        TEXT COLLATE "C"    NOT NULL,
    pid         BIGINT  NOT NULL,
    version     TEXT COLLATE "C"    NOT NULL,
    pages       BOOLEAN NOT NULL,          -- whether it serves API and pages
    kinds       TEXT COLLATE "C"    NOT NULL,          -- JSON list
    graphs      TEXT COLLATE "C",                      -- JSON list, NULL = all
    started_at  BIGINT  NOT NULL,
    every       BIGINT  NOT NULL,          -- how often it renews its row
    seen_at     BIGINT  NOT NULL,
    running     BIGINT  NOT NULL,
    waiting     BIGINT  NOT NULL,
    done        TEXT COLLATE "C"    NOT NULL,          -- JSON: numbers since it started
    last_minute TEXT COLLATE "C"    NOT NULL           -- JSON: numbers of the last minute
);

-- Counting by status and flow reads this index alone.
DROP INDEX threads_status;
CREATE INDEX threads_status ON threads (status, created_at, thread, graph);
-- What waits, counted by flow, kind and age. (With the status in it SQLite need not
-- read the points themselves.)
CREATE INDEX interrupts_waiting ON interrupts (graph, kind, asked_at, status) WHERE status = 'open';
