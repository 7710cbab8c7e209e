//! The documents that are generated from the recorded rows: a page and a picture.

mod compare;
mod page;
mod picture;
mod targets;

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use super::results::{self, Record};
use crate::{exec::workspace, table};

/// The command that generates the documents.
const COMMAND: &str = "cargo xtask bench --report";
const PAGE: &str = "docs/BENCHMARKS.md";
const PICTURE: &str = "docs/images/copy_share.svg";

/// Writes the documents.
///
/// # Errors
///
/// If the results or targets cannot be read, or a document cannot be written.
pub(super) fn write() -> Result<()> {
    for (file, text) in documents()? {
        let path = workspace().join(file);
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(|| format!("{} not made", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("{file} not written"))?;
        println!("written: {file}");
    }
    Ok(())
}

/// Compares the documents with what would be written.
///
/// # Errors
///
/// If one is missing or stale.
pub(super) fn check() -> Result<()> {
    let mut stale = Vec::new();
    for (file, text) in documents()? {
        // Line ends depend on the checkout.
        let found = fs::read_to_string(workspace().join(file)).unwrap_or_default();
        if found.replace("\r\n", "\n") != text {
            stale.push(file);
        }
    }
    if !stale.is_empty() {
        bail!("{} is stale: run `{COMMAND}`", stale.join(", "));
    }
    println!("up to date: {PAGE}, {PICTURE}");
    Ok(())
}

fn documents() -> Result<[(&'static str, String); 2]> {
    let records = results::read()?;
    let page = page::text(&records, &targets::read()?);
    let lines = page.lines().count();
    ensure!(
        lines <= page::MOST_LINES,
        "{PAGE} has {lines} lines: expected at most {}",
        page::MOST_LINES
    );
    Ok([(PAGE, page), (PICTURE, picture::svg(&records)?)])
}

/// The provider that all others are compared with.
pub(super) const OURS: &str = "cubenorm";

/// True if a provider is a copy: the ceiling, rather than a competitor.
pub(super) fn is_ceiling(provider: &str) -> bool {
    matches!(provider, "copy" | "probe")
}

/// A ratio: how many times a baseline's speed, or the share of a copy's bandwidth.
pub(super) fn ratio(baseline: &str, ratio: f64) -> String {
    match is_ceiling(baseline) {
        true => format!("{:.0} %", 100.0 * ratio),
        false => format!("{ratio:.2}x"),
    }
}

/// The means of a run as a table for a terminal.
pub(super) fn summary(records: &[Record]) -> String {
    let sections = compare::sections(records);
    let text = sections.iter().map(|section| {
        let (header, rows, _) = page::section_table(section);
        let last = header.len() - 1;
        format!(
            "{}\n{}\n",
            section.device,
            table::terminal(header, rows, 3..last)
        )
    });
    text.collect()
}

/// True if a record is one of ours.
pub(super) fn is_ours(record: &Record) -> bool {
    record.provider == OURS
}
