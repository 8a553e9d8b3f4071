//! The kernel's rules, one module per concern. Names such as K7, R4 and
//! "rule 13" refer to the project's numbered semantics.

mod amend;
mod batch;
mod breakpoints;
mod call;
mod child;
mod command;
mod compile;
mod edit;
mod failures;
mod frames;
mod ids;
mod input;
mod interrupts;
mod joins;
mod limits;
mod manifest;
mod node_interrupt;
mod pause;
mod policy;
mod property;
mod property_graphs;
mod recursion;
mod reducers;
mod replay;
mod send;
mod state;
mod steps;
mod subgraph;
mod support;
mod suspend;
mod versions;
mod waits;
mod watch;
