//! The same graphs in a process without `install`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use burn::tensor::{Device, Tensor};
use cubenorm::{InstallState, install, install_report};

use crate::{devices, values};

/// Names the file that a process without `install` writes its results to.
const RESULTS: &str = "CUBENORM_INSTALL_RESULTS";

/// Results of a test's graphs, in order, from another process without `install`. The test calls [`is_other`] first.
pub(crate) fn without_install(test: &str) -> Vec<Vec<f64>> {
    static NUMBER: Mutex<u32> = Mutex::new(0);
    let number = {
        let mut number = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
        *number += 1;
        *number
    };
    let file = format!("cubenorm-install-{}-{number}", std::process::id());
    let file: PathBuf = std::env::temp_dir().join(file);
    let program = std::env::current_exe().expect("this program has a path");
    let status = Command::new(program)
        .args([test, "--exact", "--include-ignored", "--test-threads=1"])
        .env("CUBENORM_INSTALL", "off")
        .env(RESULTS, &file)
        .status()
        .expect("this program starts");
    assert!(status.success(), "{test} fails without install");
    let text = std::fs::read_to_string(&file).expect("the other process wrote its results");
    std::fs::remove_file(&file).expect("the file is there");
    let number = |number: &str| f64::from_bits(number.parse().expect("bits of a number"));
    text.lines()
        .map(|line| line.split_whitespace().map(number).collect())
        .collect()
}

/// True in the process without `install`, which writes the results of these graphs.
pub(crate) fn is_other(results: impl FnOnce() -> Vec<Vec<f64>>) -> bool {
    let Ok(file) = std::env::var(RESULTS) else {
        return false;
    };
    install().expect("off is no error");
    assert_eq!(install_report().state, InstallState::Off);
    let line = |values: Vec<f64>| {
        let bits: Vec<String> = values
            .iter()
            .map(|value| value.to_bits().to_string())
            .collect();
        bits.join(" ")
    };
    let lines: Vec<String> = results().into_iter().map(line).collect();
    assert_eq!(install_report().norms(), 0);
    std::fs::write(file, lines.join("\n")).expect("the file can be written");
    true
}

fn norm(device: &Device) -> Vec<f64> {
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0, 6.0]], device);
    values(burn::nn::LayerNormConfig::new(4).init(device).forward(x))
}

#[test]
fn the_environment_turns_it_off() {
    let norms = || devices().iter().map(|(_, device)| norm(device)).collect();
    if is_other(norms) {
        return;
    }
    let results = without_install("process::the_environment_turns_it_off");
    assert_eq!(results.len(), devices().len());
}

#[test]
fn installing_twice_is_no_error() {
    let _guard = crate::installed();
    install().expect("it is installed");
    assert_eq!(install_report().state, InstallState::Installed);
    if let Some((_, device)) = devices().first() {
        norm(device);
        install().expect("it is installed, and running");
        assert_eq!(
            cubenorm::uninstall(),
            Err(cubenorm::InstallError::FusionRunning)
        );
        assert_eq!(install_report().state, InstallState::Installed);
    }
}

/// Names a process that uses a tensor before it installs.
const LATE: &str = "CUBENORM_INSTALL_LATE";

#[test]
fn a_late_call_is_an_error_that_says_what_to_do() {
    if std::env::var(LATE).is_ok() {
        let Some((_, device)) = devices().into_iter().next() else {
            return;
        };
        norm(&device);
        let error = install().expect_err("fusion is running");
        assert!(
            error.to_string().contains("before the first tensor"),
            "{error}"
        );
        assert_eq!(install_report().state, InstallState::NotInstalled);
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let status = Command::new(program)
        .args([
            "process::a_late_call_is_an_error_that_says_what_to_do",
            "--exact",
        ])
        .env(LATE, "1")
        .status()
        .expect("this program starts");
    assert!(status.success());
}
