-- Checkpoints of the thread before this one were compacted.
ALTER TABLE threads ADD COLUMN compacted_seq BIGINT NOT NULL DEFAULT 0;
