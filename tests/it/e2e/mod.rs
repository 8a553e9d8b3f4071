//! The real program, as a process, seen from outside.

mod api_answers;
mod api_auth;
mod api_document;
mod api_lists;
mod api_start;
mod cli;
mod cli_each;
mod crash;
mod crash_bulk;
mod hostile;
mod kit;
mod mail;
mod pages;
mod people;
mod webhook;
