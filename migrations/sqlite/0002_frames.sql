-- A frame is a run of a graph inside a task of another: a sub-graph, or a
-- graph that a body called. Its checkpoints, state, tasks and steps lie in the
-- tables of the thread under its id.
CREATE TABLE frames (
    thread     TEXT    NOT NULL REFERENCES threads (thread),
    frame      TEXT    NOT NULL,                     -- the container's id
    parent     TEXT    NOT NULL DEFAULT '',          -- the frame around it; '' is the root frame
    root_seq   INTEGER NOT NULL,                     -- the checkpoint of the root frame that it runs in
    task       TEXT    NOT NULL,                     -- the parent's task that runs it
    around     TEXT    NOT NULL,                     -- the parent's checkpoint when it began
    address    TEXT    NOT NULL,
    graph      TEXT    NOT NULL,
    head_seq   INTEGER NOT NULL,
    branch     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, frame)
) WITHOUT ROWID;
CREATE INDEX frames_root ON frames (thread, root_seq);

-- A resume may amend the superstep that it wakes: one more source of a checkpoint.
CREATE TABLE checkpoints_new (
    thread        TEXT    NOT NULL REFERENCES threads (thread),
    frame         TEXT    NOT NULL DEFAULT '',
    seq           INTEGER NOT NULL,
    checkpoint    TEXT    NOT NULL,
    parent        TEXT,
    branch        INTEGER NOT NULL,
    source        TEXT    NOT NULL CHECK (source IN ('input', 'loop', 'update', 'amend', 'fork')),
    superstep     INTEGER NOT NULL,
    graph_version INTEGER NOT NULL,
    fingerprint   TEXT    NOT NULL,
    body          BLOB    NOT NULL,
    keys          BLOB    NOT NULL,
    codec         INTEGER NOT NULL DEFAULT 0,
    key_id        TEXT,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (thread, frame, seq)
) WITHOUT ROWID;
INSERT INTO checkpoints_new SELECT * FROM checkpoints;
DROP TABLE checkpoints;
ALTER TABLE checkpoints_new RENAME TO checkpoints;
CREATE INDEX checkpoints_id ON checkpoints (thread, checkpoint);

-- What dropped a point: edited, replayed, restarted, cancelled; NULL if the flow
-- itself went on without it.
ALTER TABLE interrupts ADD COLUMN closed_by TEXT;
