//! The flows that ship with Countersign.
