//! Runs the program, on the pure-Rust backend unless `BURN_DEVICE` names another device.
//!
//! Downloads the model if it is missing.

use std::env;
use std::process::{Command, Output};

/// Runs the program with these arguments and the device.
fn minilm(arguments: &[&str]) -> Output {
    let device = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    Command::new(env!("CARGO_BIN_EXE_minilm"))
        .args(["--device", &device])
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn both_norms_agree_with_the_reference() {
    let output = minilm(&["--check"]);
    assert!(output.status.success(), "{}", stderr(&output));

    let report = stdout(&output);
    assert!(report.contains("norms by burn"), "{report}");
    assert!(report.contains("norms by cubenorm"), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn quick_run_compares_the_sentences() {
    let output = minilm(&["--quick", "A cat sat down.", "A feline took a seat."]);
    assert!(output.status.success(), "{}", stderr(&output));

    let report = stdout(&output);
    assert!(report.contains("A feline took a seat."), "{report}");
    assert!(report.contains("speed-up"), "{report}");
    assert!(report.contains("Largest difference"), "{report}");
    assert!(!report.contains('\u{1b}'), "colours in a pipe: {report}");
}

#[test]
fn unknown_device_lists_known_ones() {
    let output = Command::new(env!("CARGO_BIN_EXE_minilm"))
        .args(["--device", "abacus"])
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let message = stderr(&output);
    assert!(
        message.contains("unknown device `abacus`; choose one of:"),
        "{message}"
    );
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn device_without_graphs_is_refused_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_minilm"))
        .args(["--device", "flex", "--capture"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("device `flex` records no graphs; choose one of: cuda, rocm"),
        "{message}"
    );
}

#[test]
fn empty_batch_is_refused() {
    let output = minilm(&["--batch", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("must be at least 1"));
}
