//! Countersign: a durable job worker with queue-driven approvals.
