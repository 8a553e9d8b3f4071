//! How far a long command is: on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::super::output::Output;

/// A progress bar that lets messages through.
pub(in crate::cli) struct Progress {
    bar: ProgressBar,
    output: Output,
}

impl Progress {
    /// A bar of `total` rows.
    pub(in crate::cli) fn rows(total: u64, output: Output) -> Self {
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {per_sec} {eta}") {
            bar.set_style(style);
        }
        Self { bar, output }
    }

    /// A sign of life for an end that is not known.
    pub(in crate::cli) fn waiting(output: Output) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, output }
    }

    /// One row more.
    pub(in crate::cli) fn row_done(&self) {
        self.bar.inc(1);
    }

    /// What is going on.
    pub(in crate::cli) fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// A message that stays.
    pub(in crate::cli) fn note(&self, text: &str) {
        self.bar.suspend(|| self.output.note(text));
    }

    /// A result, printed around the bar.
    pub(in crate::cli) fn detail(&self, value: &serde_json::Value) {
        if self.output.is_json() {
            self.bar.suspend(|| self.output.detail(value));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
