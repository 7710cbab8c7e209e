//! Runs the program, on the pure-Rust backend unless `BURN_DEVICE` names another device.
//!
//! Downloads the digits if they are missing.

use std::env;
use std::fs;
use std::process::{Command, Output};

/// Runs the program with these arguments and the device.
fn digits(arguments: &[&str]) -> Output {
    let device = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    Command::new(env!("CARGO_BIN_EXE_digits"))
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
fn quick_training_compares_and_plots_both_norms() {
    let folder = tempfile::tempdir().unwrap();
    let fetched = digits::fetch::fetch(&digits::fetch::default_folder()).unwrap();
    fs::copy(fetched, folder.path().join("digits.csv")).unwrap();

    let output = digits(&[
        "--quick",
        "--check",
        "--folder",
        folder.path().to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = stdout(&output);
    assert!(
        report.contains("speed-up of cubenorm over burn"),
        "{report}"
    );
    assert!(!report.contains("FAILED"), "{report}");
    assert!(!report.contains('\u{1b}'), "colours in a pipe: {report}");
    let plot = fs::read_to_string(folder.path().join("batch.svg")).unwrap();
    assert!(plot.contains("</svg>"), "{plot}");
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn one_implementation_has_no_speed_up() {
    let folder = tempfile::tempdir().unwrap();
    // 20 pictures of each digit.
    let line = |digit: usize| {
        format!(
            "{}{}\n",
            "3,".repeat(digit) + &"9,".repeat(64 - digit),
            digit
        )
    };
    let text: String = (0..200).map(|index| line(index % 10)).collect();
    fs::write(folder.path().join("digits.csv"), text).unwrap();

    let arguments = ["--quick", "--norms", "cubenorm", "--layer", "group"];
    let output = digits(
        &[
            &arguments[..],
            &["--folder", folder.path().to_str().unwrap()],
        ]
        .concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let report = stdout(&output);
    assert!(!report.contains("speed-up"), "{report}");
    assert!(folder.path().join("group.svg").is_file());
}

#[test]
fn devices_are_one_or_more() {
    let output = digits(&["--devices", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("1..=64"), "{message}");
}

#[test]
fn invalid_digits_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("digits.csv"), "1,2,3\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_digits"))
        .arg("--folder")
        .arg(folder.path())
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("does not contain digits"), "{message}");
}
