//! Progress display on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Spinner with the elapsed time until it is dropped, or one plain line without a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows `message`.
    pub fn start(message: impl Into<String>) -> Self {
        let message = message.into();
        if !stderr().is_terminal() {
            eprintln!("{message}");
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .expect("the template is valid");
        let bar = ProgressBar::new_spinner()
            .with_style(style)
            .with_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
