//! The real program, as a process, seen from outside.

mod amend_api;
mod api_answers;
mod api_auth;
mod api_document;
mod api_lists;
mod api_start;
mod check;
mod cli;
mod cli_each;
mod crash;
mod crash_bulk;
mod events;
mod hostile;
mod kit;
mod mail;
mod pages;
mod people;
mod postgres;
mod time_travel_api;
mod time_travel_cli;
mod time_travel_hard;
mod time_travel_subgraph;
mod ways_on;
mod webhook;
