//! Discovery of cases, and the result of each kind of outcome.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::Float64;
use cubenorm_core::DType;
use cubenorm_models::onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use cubenorm_models::onnx::write_tensor;
use cubenorm_models::verify::{CaseResult, Kind, Options, Report, find_cases, verify};
use cubenorm_models::{ExecuteError, Executor, HostArray, Run};
use cubenorm_operators::{Program, Slot};
use prost::Message;
use serde_json::json;
use tempfile::TempDir;

/// A folder of files by their paths.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    folder
}

fn model(data_type: &str) -> Vec<u8> {
    let tensor = json!({ "DataType": data_type, "Sizes": [1, 2] });
    let model = json!({
        "resources": {
            "In": { "initialValuesDataType": data_type, "initialValues": [1, 3] },
            "Out": { "initialValuesDataType": data_type, "initialValues": [0, 0] }
        },
        "dispatchables": { "norm": {
            "type": "MEAN_VARIANCE_NORMALIZATION1",
            "desc": {
                "InputTensor": tensor, "OutputTensor": tensor,
                "AxisCount": 1, "Axes": [1], "NormalizeVariance": true, "Epsilon": 0
            }
        } },
        "commands": [{
            "type": "dispatch", "dispatchable": "norm",
            "bindings": { "InputTensor": "In", "OutputTensor": "Out" }
        }]
    });
    model.to_string().into_bytes()
}

fn expected(data_type: &str, values: serde_json::Value) -> Vec<u8> {
    let expected = json!({ "Out": {
        "dataType": data_type, "sizes": [1, 2], "rtol": 0, "atol": 1e-6, "values": values
    } });
    expected.to_string().into_bytes()
}

fn onnx() -> Vec<u8> {
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: None,
    };
    let node = NodeProto {
        input: vec!["X".to_owned()],
        output: vec!["Y".to_owned()],
        op_type: Some("LpNormalization".to_owned()),
        ..NodeProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(22),
        }],
        graph: Some(GraphProto {
            node: vec![node],
            input: vec![value("X")],
            output: vec![value("Y")],
            ..GraphProto::default()
        }),
    };
    model.encode_to_vec()
}

fn tensor(values: &[f64]) -> Vec<u8> {
    write_tensor(
        "t",
        &HostArray::from_f64(DType::F32, [values.len()], values).unwrap(),
    )
}

fn run(folder: &Path) -> Report {
    verify(&[folder.to_owned()], &Float64::new(), &Options::default())
}

/// The only outcome of a folder with these files.
fn outcome(files: &[(&str, &[u8])]) -> CaseResult {
    let folder = folder(files);
    let report = run(folder.path());
    let [outcome] = report.outcomes.as_slice() else {
        panic!("expected one case: {report:?}");
    };
    outcome.result.clone()
}

#[track_caller]
fn assert_failed(result: &CaseResult, part: &str) {
    match result {
        CaseResult::Failed(reason) => assert!(reason.contains(part), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn finds_cases_in_order() {
    let folder = folder(&[
        ("b.json", b"{}"),
        ("b.expected.json", b"{}"),
        ("other.json", b"{}"),
        ("a/model.onnx", b""),
        ("a/test_data_set_0/input_0.pb", b""),
        ("lonely/model.onnx", b""),
        ("cases.json", b"[]"),
        ("invalid/x.json", b"{}"),
        ("invalid/y.onnx", b""),
        ("invalid/deep/z/model.onnx", b""),
        ("invalid/values.npy", b""),
        ("gone.expected.json", b"{}"),
    ]);
    let cases = find_cases(&[folder.path().to_owned(), folder.path().join("a")]);
    let found: Vec<(String, Kind, bool)> = cases
        .iter()
        .map(|case| {
            let path = case.path.strip_prefix(folder.path()).unwrap();
            (path.display().to_string(), case.kind, case.must_be_refused)
        })
        .collect();
    let case = |path: &str, kind, refused| (path.to_owned(), kind, refused);
    assert_eq!(
        found,
        [
            case("a", Kind::Onnx, false),
            case("b.json", Kind::DxDispatch, false),
            case("gone.expected.json", Kind::Path, false),
            case("invalid/deep/z", Kind::Onnx, true),
            case("invalid/x.json", Kind::DxDispatch, true),
            case("invalid/y.onnx", Kind::Onnx, true),
        ]
    );
}

#[cfg(unix)]
#[test]
fn links_are_followed_but_not_in_cycles() {
    let folder = folder(&[("in/a.json", b"{}"), ("in/a.expected.json", b"{}")]);
    let link = |from: &str, to: &str| {
        std::os::unix::fs::symlink(folder.path().join(from), folder.path().join(to)).unwrap();
    };
    link("in", "in/circle");
    assert_eq!(find_cases(&[folder.path().to_owned()]).len(), 1);
    link("nothing", "in/broken.json");
    let cases = find_cases(&[folder.path().to_owned()]);
    assert_eq!(cases.iter().filter(|case| case.broken.is_some()).count(), 1);
}

#[test]
fn missing_paths_are_failures() {
    let report = verify(
        &[PathBuf::from("no/such/folder")],
        &Float64::new(),
        &Options::default(),
    );
    assert_eq!(report.counts(), (0, 1, 0));
    assert!(!report.is_success());
    assert!(!verify(&[], &Float64::new(), &Options::default()).is_success());
}

#[test]
fn dxdispatch_cases_pass_if_they_agree() {
    let right = expected("FLOAT32", json!([-1, 1]));
    let files = [
        ("a.json", &model("FLOAT32")[..]),
        ("a.expected.json", &right),
    ];
    assert_eq!(outcome(&files), CaseResult::Passed(None));

    let gap = expected("FLOAT32", json!([null, 1]));
    let files = [("a.json", &model("FLOAT32")[..]), ("a.expected.json", &gap)];
    assert_eq!(outcome(&files), CaseResult::Passed(None));

    for (wrong, part) in [
        (expected("FLOAT32", json!([-1, 1.5])), "element 1 at [0, 1] is 1.0: expected 1.5"),
        (expected("FLOAT32", json!([-1])), "number of elements"),
        (expected("FLOAT16", json!([-1, 1])), "data type"),
        (expected("FLOAT99", json!([-1, 1])), "FLOAT99"),
        (b"{}".to_vec(), "expects nothing"),
        (b"[".to_vec(), "does not say"),
        (json!({ "Missing": { "dataType": "FLOAT32", "rtol": 0, "atol": 0, "values": [] } }).to_string().into(), "Missing"),
        (
            json!({ "Out": { "dataType": "FLOAT32", "sizes": [2, 1], "rtol": 0, "atol": 1, "values": [-1, 1] } })
                .to_string()
                .into(),
            "sizes",
        ),
    ] {
        let files = [("a.json", &model("FLOAT32")[..]), ("a.expected.json", &wrong)];
        assert_failed(&outcome(&files), part);
    }
    let files = [("a.json", &b"{"[..]), ("a.expected.json", &right)];
    assert_failed(&outcome(&files), "not JSON");
}

#[test]
fn onnx_cases_pass_if_they_agree() {
    let model = onnx();
    let case = |input: &[u8], outputs: &[&[u8]], cases: Option<&[u8]>| {
        let mut files = vec![
            ("c/model.onnx".to_owned(), model.clone()),
            ("c/test_data_set_0/input_0.pb".to_owned(), input.to_vec()),
        ];
        for (index, output) in outputs.iter().enumerate() {
            files.push((
                format!("c/test_data_set_0/output_{index}.pb"),
                output.to_vec(),
            ));
        }
        if let Some(cases) = cases {
            files.push(("cases.json".to_owned(), cases.to_vec()));
        }
        let files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(n, c)| (n.as_str(), c.as_slice()))
            .collect();
        outcome(&files)
    };
    let input = tensor(&[3.0, 4.0]);
    assert_eq!(
        case(&input, &[&tensor(&[0.6, 0.8])], None),
        CaseResult::Passed(None)
    );
    assert_failed(
        &case(&input, &[&tensor(&[0.6, 0.9])], None),
        "test_data_set_0: output \"Y\": element 1",
    );
    assert_failed(&case(&input, &[&tensor(&[0.6])], None), "shape");
    assert_failed(&case(&input, &[], None), "number of outputs");
    assert_failed(&case(b"\xff", &[&tensor(&[0.6, 0.8])], None), "input_0.pb");
    let half = HostArray::from_f64(DType::F16, [2], &[0.6, 0.8]).unwrap();
    assert_failed(
        &case(&input, &[&write_tensor("t", &half)], None),
        "element type",
    );

    let loose = br#"[{ "name": "c", "rtol": 0, "atol": 0.2 }, { "name": "d" }]"#;
    assert_eq!(
        case(&input, &[&tensor(&[0.6, 0.9])], Some(loose)),
        CaseResult::Passed(None)
    );
    let own =
        br#"[{ "name": "c", "rtol": 0, "atol": 0, "outputs": [{ "name": "Y", "atol": 0.2 }] }]"#;
    assert_eq!(
        case(&input, &[&tensor(&[0.6, 0.9])], Some(own)),
        CaseResult::Passed(None)
    );
    assert_failed(
        &case(&input, &[&tensor(&[0.6, 0.8])], Some(b"{")),
        "cases.json",
    );

    // As NumPy compares: NaN with NaN, infinity with infinity.
    let nan = tensor(&[f64::NAN, f64::NAN]);
    assert_eq!(
        case(&tensor(&[f64::NAN, 1.0]), &[&nan], None),
        CaseResult::Passed(None)
    );
}

#[test]
fn invalid_cases_pass_with_typed_errors() {
    let broken = outcome(&[("invalid/a.json", b"{")]);
    assert!(matches!(broken, CaseResult::Passed(Some(_))), "{broken:?}");
    let broken = outcome(&[("invalid/a.onnx", b"\xff")]);
    assert!(matches!(broken, CaseResult::Passed(Some(_))), "{broken:?}");
    let broken = outcome(&[("invalid/a/model.onnx", b"")]);
    assert!(matches!(broken, CaseResult::Passed(Some(_))), "{broken:?}");
    let input = outcome(&[
        ("invalid/a/model.onnx", &onnx()),
        ("invalid/a/test_data_set_0/input_0.pb", b"\xff"),
    ]);
    assert!(matches!(input, CaseResult::Passed(Some(_))), "{input:?}");

    assert_failed(
        &outcome(&[("invalid/a.json", &model("FLOAT32"))]),
        "expected it to be refused",
    );
    let valid = outcome(&[
        ("invalid/a/model.onnx", &onnx()),
        ("invalid/a/test_data_set_0/input_0.pb", &tensor(&[3.0, 4.0])),
        (
            "invalid/a/test_data_set_0/output_0.pb",
            &tensor(&[9.0, 9.0]),
        ),
    ]);
    assert_failed(&valid, "expected it to be refused");
}

#[test]
fn only_other_types_than_float32_are_skipped() {
    let files = |data_type: &str| {
        let values = expected(data_type, json!([-1, 1]));
        folder(&[("a.json", &model(data_type)), ("a.expected.json", &values)])
    };
    let run = |dtypes: &[DType], data_type: &str| {
        let dtypes = dtypes.to_vec();
        let folder = files(data_type);
        let paths = [folder.path().to_owned()];
        verify(&paths, &Float64 { dtypes }, &Options::default())
    };
    let report = run(&[DType::F32], "FLOAT16");
    assert_eq!(report.to_string(), "0 passed, 0 failed, 1 skipped");
    assert!(
        matches!(&report.outcomes[0].result, CaseResult::Skipped(reason) if reason.contains("f16"))
    );
    assert!(!report.is_success(), "nothing ran");
    assert_eq!(run(&[DType::F16], "FLOAT32").counts(), (0, 1, 0));
}

#[test]
fn panics_fail_only_their_case() {
    struct Panicking;
    impl Executor for Panicking {
        fn name(&self) -> &str {
            "panicking"
        }

        fn run(
            &self,
            _: &Program,
            _: &BTreeMap<Slot, Vec<u8>>,
            _: usize,
        ) -> Result<Run, ExecuteError> {
            panic!("out of luck")
        }
    }
    let values = expected("FLOAT32", json!([-1, 1]));
    let folder = folder(&[
        ("a.json", &model("FLOAT32")),
        ("a.expected.json", &values),
        ("invalid/b.json", b"{"),
    ]);
    let report = verify(&[folder.path().to_owned()], &Panicking, &Options::default());
    assert_failed(&report.outcomes[0].result, "it panicked: out of luck");
    assert_eq!(report.to_string(), "1 passed, 1 failed, 0 skipped");
    let json = report.to_json();
    assert_eq!(json[0]["kind"], "dxdispatch");
    assert_eq!(json[0]["device"], "panicking");
    assert_eq!(json[0]["result"], "failed");
    assert_eq!(json[1]["result"], "passed");
}
