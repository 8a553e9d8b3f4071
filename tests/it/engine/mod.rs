//! The engine on a real store: what happens when people, crashes and lost
//! messages get between.

mod answers;
mod control;
mod crash;
mod delivery;
mod delivery_lost;
mod failure;
mod graphs;
mod lease;
mod load;
mod queue;
mod shipped;
