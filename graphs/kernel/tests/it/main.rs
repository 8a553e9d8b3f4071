//! The kernel's rules, one module per concern. Names such as K7, R4 and
//! "rule 13" refer to the project's numbered semantics.

mod batch;
mod breakpoints;
mod failures;
mod ids;
mod input;
mod interrupts;
mod limits;
mod manifest;
mod property;
mod state;
mod steps;
mod support;
mod suspend;
