-- A frame is a run of a graph inside a task of another: a sub-graph, or a
-- graph that a body called. Its checkpoints, state, tasks and steps lie in the
-- tables of the thread under its id.
CREATE TABLE frames (
    thread     TEXT COLLATE "C"    NOT NULL REFERENCES threads (thread),
    frame      TEXT COLLATE "C"    NOT NULL,                     -- the container's id
    parent     TEXT COLLATE "C"    NOT NULL DEFAULT '',          -- the frame around it; '' is the root frame
    root_seq   BIGINT NOT NULL,                     -- the checkpoint of the root frame that it runs in
    task       TEXT COLLATE "C"    NOT NULL,                     -- the parent's task that runs it
    around     TEXT COLLATE "C"    NOT NULL,                     -- the parent's checkpoint when it began
    address    TEXT COLLATE "C"    NOT NULL,
    graph      TEXT COLLATE "C"    NOT NULL,
    head_seq   BIGINT NOT NULL,
    branch     BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread, frame)
);
CREATE INDEX frames_root ON frames (thread, root_seq);

-- A resume may amend the superstep that it wakes: one more source of a checkpoint.
ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_source_check;
ALTER TABLE checkpoints ADD CONSTRAINT checkpoints_source_check
    CHECK (source IN ('input', 'loop', 'update', 'amend', 'fork'));
CREATE INDEX checkpoints_id ON checkpoints (thread, checkpoint);

-- What dropped a point: edited, replayed, restarted, cancelled; NULL if the flow
-- itself went on without it.
ALTER TABLE interrupts ADD COLUMN closed_by TEXT COLLATE "C";
