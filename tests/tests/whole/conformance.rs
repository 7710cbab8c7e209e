//! Operators from files: ONNX's node tests and DxDispatch models in the folder `CUBENORM_CASES`.

use std::path::PathBuf;

use cubenorm_models::run;
use cubenorm_models::verify::{CaseResult, Options, verify};
use cubenorm_tests::device::is_selected;

#[test]
#[ignore = "needs a folder of cases in CUBENORM_CASES: cargo xtask gpu-check"]
fn operators_from_files_give_their_expected_outputs() {
    let cases = std::env::var_os("CUBENORM_CASES").expect("CUBENORM_CASES names a folder");
    let cases = [PathBuf::from(cases)];
    for name in run::compiled().into_iter().filter(|name| is_selected(name)) {
        let executor = run::open(name).unwrap_or_else(|error| panic!("{error}"));
        let report = verify(&cases, executor.as_ref(), &Options::default());
        for outcome in &report.outcomes {
            if !matches!(outcome.result, CaseResult::Passed(_)) {
                println!("{outcome}");
            }
        }
        let (passed, failed, skipped) = report.counts();
        println!("{name}: {passed} cases passed, {failed} failed, {skipped} skipped");
        assert!(report.is_success(), "{name}: {failed} cases failed");
    }
}
