//! `cubenorm-bench` as `cargo xtask` drives it: the verbs' input and output.

use std::{
    env,
    io::Write as _,
    process::{Command, Stdio},
};

use cubenorm_bench::{Op, Pass, Problem};
use serde_json::Value;
use strum::VariantNames as _;

const PROBLEM: &str = r#"{"op":"rms_norm","shape":[4,64],"dtype":"f32","pass":"forward"}"#;

/// The program's answer to each line.
fn said(arguments: &[&str], lines: &[&str]) -> Vec<Value> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cubenorm-bench"));
    let program = program.args(arguments);
    if cfg!(feature = "cpu") {
        program.env("BURN_DEVICE", "cpu");
    }
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    let mut input = child.stdin.take().expect("it is piped");
    for line in lines {
        writeln!(input, "{line}").expect("the program reads");
    }
    drop(input);
    let output = child.wait_with_output().expect("the program ends");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let values = text.lines().map(serde_json::from_str);
    values.collect::<Result<_, _>>().expect("lines of JSON")
}

/// The answer to [`PROBLEM`].
fn answer(arguments: &[&str]) -> Value {
    match said(arguments, &[PROBLEM])[0]["Ok"].take() {
        Value::Null => panic!("{arguments:?} was refused"),
        told => told,
    }
}

#[test]
fn an_explanation_has_plan_bytes_and_kernels() {
    let log = env::temp_dir().join(format!("cubenorm-explain-{}", std::process::id()));
    let explained = answer(&["explain", &log.to_string_lossy()]);
    let _ = std::fs::remove_file(log);
    let plan = explained["plan"].as_str().expect("a text");
    assert!(plan.contains(": "), "a strategy and its numbers: {plan}");
    // Input, output and scale.
    assert_eq!(explained["minimum"], 4 * (256 + 256 + 64));
    assert_eq!(explained["kernels"].as_array().map(Vec::len), Some(1));
}

#[test]
fn candidates_have_names_and_times() {
    let tuned = &answer(&["tune"])[0];
    let candidates = tuned["candidates"].as_array().expect("a list");
    assert_eq!(candidates[0]["name"], "analytic");
    let has_chosen = candidates.iter().any(|it| it["name"] == tuned["chosen"]);
    assert!(has_chosen, "{tuned}");
    assert!(candidates.len() > 1, "{tuned}");
    let times = candidates.iter().map(|it| it["time"].as_f64());
    assert!(times.flatten().all(|time| time > 0.0), "{tuned}");
}

#[test]
fn a_round_has_the_times_of_each_clock() {
    let prepare = format!(r#"{{"prepare":{PROBLEM}}}"#);
    let said = said(&["work", "cubenorm"], &[&prepare, r#""round""#]);
    assert!(said[0]["ready"]["runtime"].is_string(), "{said:?}");
    let times = |clock: &str| {
        let times = said[1]["round"][clock].as_array().expect("a list");
        let times: Vec<f64> = times.iter().flat_map(Value::as_f64).collect();
        assert!(times.iter().all(|&time| time > 0.0), "{said:?}");
        times.len()
    };
    assert!(times("wall") > 0, "{said:?}");
    // The `cpu` runtime has the host's.
    let expected = if cfg!(feature = "cpu") {
        0
    } else {
        times("wall")
    };
    assert_eq!(times("device"), expected, "{said:?}");
}

/// A problem of each operator, in training if it trains.
fn of_each_operator() -> Vec<String> {
    let ops = Op::VARIANTS.iter().map(|name| name.parse::<Op>());
    let problems = ops.map(|op| {
        let op = op.expect("a name is one of an operator");
        let pass = match op.trains() {
            true => Pass::Full,
            false => Pass::Forward,
        };
        let problem = Problem {
            pass,
            ..Problem::new(op, [2, 4, 4, 16])
        };
        serde_json::to_string(&problem).expect("a problem is JSON")
    });
    problems.collect()
}

#[test]
fn every_operator_agrees_with_the_reference_in_both_libraries() {
    let requests = of_each_operator();
    let requests = requests.iter().map(|it| format!(r#"{{"prepare":{it}}}"#));
    let requests: Vec<String> = requests.collect();
    let lines: Vec<&str> = requests.iter().map(String::as_str).collect();
    for provider in ["cubenorm", "burn"] {
        for (request, said) in lines.iter().zip(said(&["work", provider], &lines)) {
            assert!(
                said["ready"].is_object(),
                "{provider}: {request} got {said}"
            );
        }
    }
}

#[test]
fn every_operator_is_explained() {
    let log = env::temp_dir().join(format!("cubenorm-explain-all-{}", std::process::id()));
    let problems = of_each_operator();
    let lines: Vec<&str> = problems.iter().map(String::as_str).collect();
    let explained = said(&["explain", &log.to_string_lossy()], &lines);
    let _ = std::fs::remove_file(log);
    for (problem, explained) in lines.iter().zip(explained) {
        // It trains by two operations.
        let has_kernel = !problem.contains("dynamic_tanh");
        let is_explained = explained["Ok"]["plan"].is_string();
        assert_eq!(is_explained, has_kernel, "{problem}: {explained}");
    }
}

#[test]
fn a_missing_pass_is_no_failure() {
    let back = PROBLEM.replace("forward", "full");
    let prepare = format!(r#"{{"prepare":{back}}}"#);
    let said = said(&["work", "elementwise"], &[&prepare]);
    assert!(said[0]["unsupported"].is_string(), "{said:?}");
}

#[test]
fn an_unknown_word_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_cubenorm-bench"))
        .arg("plans")
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("usage: cubenorm-bench"), "{said}");
}
