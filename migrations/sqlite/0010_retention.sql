-- Checkpoints of the thread before this one were compacted.
ALTER TABLE threads ADD COLUMN compacted_seq INTEGER NOT NULL DEFAULT 0;
