//! End-to-end, contract and crash tests; see `it/`.
