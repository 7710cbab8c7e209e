//! Runs the program.

use std::env;
use std::process::{Command, Output};

/// Environment variable with the folder of the published weights.
const WEIGHTS: &str = "CUBENORM_CANDY_WEIGHTS";

fn candy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_candy"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs on the pure-Rust backend unless `BURN_DEVICE` names another device.
#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn small_check_passes_with_both_norms() {
    let Ok(weights) = env::var(WEIGHTS) else {
        eprintln!("skipped: {WEIGHTS} does not name a folder of weights");
        return;
    };
    let device = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    for norms in ["burn", "cubenorm"] {
        let arguments = [
            "--weights",
            &weights,
            "--device",
            &device,
            "--norms",
            norms,
            "--check",
        ];
        let output = candy(&arguments);
        assert!(
            output.status.success(),
            "norms by {norms}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn missing_folder_is_an_error() {
    let output = candy(&["--weights", "there/is/no/such/folder", "--check"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("there/is/no/such/folder"), "{message}");
}

#[test]
fn missing_arguments_are_refused() {
    assert_eq!(candy(&["--weights", "."]).status.code(), Some(2));
    assert_eq!(
        candy(&["--weights", ".", "--check", "--output", "a.png"])
            .status
            .code(),
        Some(2)
    );
}
