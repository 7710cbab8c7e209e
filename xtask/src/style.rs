//! Words with a meaning in colour. The printing macros of `anstream` remove the colour if the
//! output is piped or `NO_COLOR` is set.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) fn good(text: impl Display) -> String {
    paint(AnsiColor::Green.on_default().bold(), text)
}

pub(crate) fn warning(text: impl Display) -> String {
    paint(AnsiColor::Yellow.on_default().bold(), text)
}

pub(crate) fn bad(text: impl Display) -> String {
    paint(AnsiColor::Red.on_default().bold(), text)
}

pub(crate) fn faint(text: impl Display) -> String {
    paint(Style::new().dimmed(), text)
}

pub(crate) fn heading(text: impl Display) -> String {
    paint(Style::new().bold(), text)
}
