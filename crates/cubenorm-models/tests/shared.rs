//! All shared cases, in float64.

mod common;

use common::{Float64, shared};
use cubenorm_models::verify::{Options, verify};

fn all_pass(name: &str, least: usize) {
    let Some(folder) = shared(name) else { return };
    let report = verify(&[folder], &Float64::new(), &Options::default());
    let lines: Vec<String> = report.outcomes.iter().map(ToString::to_string).collect();
    assert!(report.is_success(), "{}\n{report}", lines.join("\n"));
    let (passed, _, skipped) = report.counts();
    println!("{name}: {report}");
    assert!(passed >= least && skipped == 0, "{report}");
}

#[test]
fn onnx_cases_pass() {
    all_pass("onnx", 53);
}

#[test]
fn dxdispatch_cases_pass() {
    all_pass("dxdispatch", 12);
}

#[test]
fn models_with_other_files_pass() {
    all_pass("cases/onnx/files", 2);
}
