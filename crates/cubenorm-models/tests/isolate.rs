//! Cases in another process. The child is this test's own program, running its test `child`.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::Float64;
use cubenorm_models::verify::isolate::{SuperviseError, serve, supervise};
use cubenorm_models::verify::{Case, CaseResult, Kind, Options, Report};
use cubenorm_models::{ExecuteError, Executor, Run};
use cubenorm_operators::{Program, Slot};
use serde_json::json;

const CHILD: &str = "CUBENORM_TEST_CHILD";

/// Misbehaves as the variable says, on the case whose epsilon is 3.
struct Faulty(String);

impl Executor for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn run(
        &self,
        program: &Program,
        buffers: &BTreeMap<Slot, Vec<u8>>,
        iterations: usize,
    ) -> Result<Run, ExecuteError> {
        let is_faulty = format!("{program:?}").contains("InsideSqrt(3.0)");
        match self.0.as_str() {
            "abort" if is_faulty => std::process::abort(),
            "hang" if is_faulty => loop {
                println!("a driver says something");
                std::thread::sleep(Duration::from_millis(50));
            },
            _ => Float64::new().run(program, buffers, iterations),
        }
    }
}

/// Not a test by itself: the child of the other tests.
#[test]
fn child() {
    let Ok(fault) = std::env::var(CHILD) else {
        return;
    };
    if fault == "early" {
        std::process::abort();
    }
    let faulty = Faulty(fault.clone());
    let executor: Result<&dyn Executor, &str> = match fault.as_str() {
        "closed" => Err("there is none"),
        _ => Ok(&faulty),
    };
    // The lock of the standard output is the test harness's; the stream is not.
    serve(
        executor,
        &Options::default(),
        io::stdin().lock(),
        io::stdout(),
    )
    .unwrap();
    std::process::exit(0);
}

fn run(fault: &str, count: usize) -> Result<(Report, Vec<String>), SuperviseError> {
    let folder = tempfile::tempdir().unwrap();
    let case = |number: usize| {
        let tensor = json!({ "DataType": "FLOAT32", "Sizes": [1, 2] });
        let model = json!({
            "resources": {
                "In": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 3] },
                "Out": { "initialValuesDataType": "FLOAT32", "initialValues": [0, 0] }
            },
            "dispatchables": { "norm": {
                "type": "MEAN_VARIANCE_NORMALIZATION1",
                "desc": {
                    "InputTensor": tensor, "OutputTensor": tensor,
                    "AxisCount": 1, "Axes": [1], "NormalizeVariance": true, "Epsilon": number
                }
            } },
            "commands": [{
                "type": "dispatch", "dispatchable": "norm",
                "bindings": { "InputTensor": "In", "OutputTensor": "Out" }
            }]
        });
        let expected =
            json!({ "Out": { "dataType": "FLOAT32", "rtol": 0, "atol": 2, "values": [0, 0] } });
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, model.to_string()).unwrap();
        let beside = folder.path().join(format!("{number}.expected.json"));
        std::fs::write(beside, expected.to_string()).unwrap();
        Case {
            path,
            kind: Kind::DxDispatch,
            must_be_refused: false,
            broken: None,
        }
    };
    let mut cases: Vec<Case> = (0..count).map(case).collect();
    let broken = Case {
        path: PathBuf::from("broken"),
        kind: Kind::Path,
        must_be_refused: false,
        broken: Some("it is broken".to_owned()),
    };
    cases.insert(1, broken);
    let mut command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, fault);
        command
    };
    let mut seen = Vec::new();
    let limit = Duration::from_millis(1500);
    let report = supervise(cases, &mut command, limit, &mut |outcome| {
        seen.push(
            outcome
                .case
                .path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned(),
        );
    })?;
    Ok((report, seen))
}

const ORDER: [&str; 6] = ["0.json", "broken", "1.json", "2.json", "3.json", "4.json"];

#[test]
fn all_cases_run_in_order() {
    let (report, seen) = run("none", 5).unwrap();
    assert_eq!(seen, ORDER);
    assert_eq!(report.device, "faulty");
    assert_eq!(report.to_string(), "5 passed, 1 failed, 0 skipped");
}

#[test]
fn crashes_cost_one_case() {
    let (report, seen) = run("abort", 5).unwrap();
    assert_eq!(seen, ORDER);
    assert_eq!(report.to_string(), "4 passed, 2 failed, 0 skipped");
    let result = &report.outcomes[4].result;
    assert!(
        matches!(result, CaseResult::Failed(reason) if reason.contains("its process ended")),
        "{result:?}"
    );
}

#[test]
fn hangs_cost_one_case() {
    let start = Instant::now();
    let (report, seen) = run("hang", 5).unwrap();
    assert_eq!(seen, ORDER);
    assert_eq!(report.to_string(), "4 passed, 2 failed, 0 skipped");
    let result = &report.outcomes[4].result;
    assert!(
        matches!(result, CaseResult::Failed(reason) if reason.contains("within 1.5 s")),
        "{result:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn device_failures_are_errors_of_no_case() {
    let error = run("closed", 2).unwrap_err();
    assert_eq!(error.to_string(), "there is none");
    let error = run("early", 2).unwrap_err();
    assert!(
        error.to_string().starts_with("the device did not start"),
        "{error}"
    );
}
