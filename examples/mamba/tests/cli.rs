//! Runs the program, on the pure-Rust backend unless `BURN_DEVICE` names another device.
//!
//! Downloads the digits if they are missing.

use std::env;
use std::fs;
use std::process::Command;

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn quick_training_compares_and_plots_both_norms() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("losses.svg");
    let device = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    let output = Command::new(env!("CARGO_BIN_EXE_mamba"))
        .args(["--device", &device, "--quick", "--check", "--plot"])
        .arg(&plot)
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        report.contains("speed-up of cubenorm over burn"),
        "{report}"
    );
    assert!(!report.contains("FAILED"), "{report}");
    assert!(fs::read_to_string(plot).unwrap().contains("</svg>"));
}
