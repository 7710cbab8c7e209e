//! Cases with expected gradients, compared with central differences of the forward pass.

mod common;

use std::fs;
use std::path::Path;

use common::{Float64, npy, npz};
use cubenorm_core::DType;
use cubenorm_models::HostArray;
use cubenorm_models::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use cubenorm_models::onnx::{BindError, Node, Prepared, write_tensor};
use cubenorm_models::verify::{CaseResult, Options, verify};
use prost::Message;
use tempfile::TempDir;

const SHAPE: [usize; 3] = [2, 4, 3];
const ELEMENTS: usize = 24;
const CHANNELS: usize = 4;
const STEP: f64 = 1e-5;

/// Pseudo-random numbers from -1 to 1.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count)
        .map(|i| ((i * 37 + seed * 101) % 64) as f64 / 32.0 - 1.0)
        .collect()
}

fn node(
    domain: &str,
    op_type: &str,
    version: i64,
    inputs: &[&str],
    ints: &[(&str, i64)],
) -> Vec<u8> {
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: None,
    };
    let attribute = |&(name, i): &(&str, i64)| AttributeProto {
        name: Some(name.to_owned()),
        i: Some(i),
        r#type: Some(2),
        ..AttributeProto::default()
    };
    let node = NodeProto {
        input: inputs.iter().map(|&name| name.to_owned()).collect(),
        output: vec!["Y".to_owned()],
        op_type: Some(op_type.to_owned()),
        domain: Some(domain.to_owned()),
        attribute: ints.iter().map(attribute).collect(),
        ..NodeProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: Some(domain.to_owned()),
            version: Some(version),
        }],
        graph: Some(GraphProto {
            node: vec![node],
            input: inputs.iter().map(|name| value(name)).collect(),
            output: vec![value("Y")],
            ..GraphProto::default()
        }),
    };
    model.encode_to_vec()
}

/// Two groups of two channels each, which the step reads in another shape.
fn group_norm() -> Vec<u8> {
    let inputs = ["X", "S", "B"];
    node("", "GroupNormalization", 21, &inputs, &[("num_groups", 2)])
}

fn lp_norm() -> Vec<u8> {
    node("", "LpNormalization", 22, &["X"], &[])
}

fn array(dtype: DType, shape: &[usize], values: &[f64]) -> HostArray {
    HostArray::from_f64(dtype, shape, values).unwrap()
}

fn inputs(dtype: DType) -> Vec<HostArray> {
    vec![
        array(dtype, &SHAPE, &numbers(ELEMENTS, 1)),
        array(dtype, &[CHANNELS], &numbers(CHANNELS, 2)),
        array(dtype, &[CHANNELS], &numbers(CHANNELS, 3)),
    ]
}

fn run(node: &Node, inputs: &[HostArray]) -> HostArray {
    let prepared = Prepared::new(node, inputs).unwrap();
    let (mut outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    outputs.remove(0).1
}

/// Slopes of `sum(dY * Y)` for each element of an input.
fn slopes(node: &Node, inputs: &[HostArray], position: usize, dy: &[f64]) -> Vec<f64> {
    let values = inputs[position].to_f64().unwrap();
    let loss = |element: usize, step: f64| -> f64 {
        let mut moved = values.clone();
        moved[element] += step;
        let mut inputs = inputs.to_vec();
        inputs[position] = array(DType::F64, &inputs[position].shape, &moved);
        let y = run(node, &inputs).to_f64().unwrap();
        y.iter().zip(dy).map(|(y, dy)| y * dy).sum()
    };
    (0..values.len())
        .map(|element| (loss(element, STEP) - loss(element, -STEP)) / (2.0 * STEP))
        .collect()
}

/// Gradients of [`group_norm`] by central differences, with their names.
fn expected() -> Vec<(&'static str, Vec<u8>)> {
    let node = Node::from_bytes(&group_norm()).unwrap();
    let inputs = inputs(DType::F64);
    let dy = numbers(ELEMENTS, 4);
    let of = |position: usize| {
        let slopes = slopes(&node, &inputs, position, &dy);
        npy(&inputs[position].shape, &slopes)
    };
    vec![
        ("dY", npy(&SHAPE, &dy)),
        ("dX", of(0)),
        ("dScale", of(1)),
        ("dBias", of(2)),
    ]
}

/// A case `c` of a model and its inputs, whose forward pass agrees.
fn case(model: &[u8], inputs: &[HostArray]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "c/model.onnx", model);
    add_set(&folder, "c/test_data_set_0", model, inputs);
    folder
}

fn add_set(folder: &TempDir, set: &str, model: &[u8], inputs: &[HostArray]) {
    for (index, input) in inputs.iter().enumerate() {
        let file = format!("{set}/input_{index}.pb");
        write(folder, &file, &write_tensor("", input));
    }
    let output = run(&Node::from_bytes(model).unwrap(), inputs);
    let file = format!("{set}/output_0.pb");
    write(folder, &file, &write_tensor("Y", &output));
}

fn write(folder: &TempDir, name: &str, contents: &[u8]) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

fn outcome(folder: &Path, gradients: bool) -> CaseResult {
    let options = Options {
        gradients,
        ..Options::default()
    };
    let report = verify(&[folder.to_owned()], &Float64::new(), &options);
    let [outcome] = report.outcomes.as_slice() else {
        panic!("expected one case: {report:?}");
    };
    outcome.result.clone()
}

#[track_caller]
fn assert_failed(folder: &TempDir, part: &str) {
    match outcome(folder.path(), true) {
        CaseResult::Failed(reason) => assert!(reason.contains(part), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_passed(folder: &TempDir) {
    assert_eq!(outcome(folder.path(), true), CaseResult::Passed(None));
}

/// The arrays with one replaced.
fn with(arrays: &[(&'static str, Vec<u8>)], name: &str, array: Vec<u8>) -> Vec<u8> {
    let mut arrays = arrays.to_vec();
    let at = arrays.iter().position(|(other, _)| *other == name).unwrap();
    arrays[at].1 = array;
    npz(&arrays, false)
}

#[test]
fn cases_pass_if_their_gradients_agree() {
    let folder = case(&group_norm(), &inputs(DType::F64));
    assert_passed(&folder);
    for is_deflated in [false, true] {
        write(&folder, "c/grads.npz", &npz(&expected(), is_deflated));
        assert_passed(&folder);
    }
    // Any number of gradients.
    let some = expected().into_iter().filter(|(name, _)| *name != "dScale");
    write(
        &folder,
        "c/grads.npz",
        &npz(&some.collect::<Vec<_>>(), false),
    );
    assert_passed(&folder);
}

#[test]
fn gradients_are_in_the_dtype_of_the_model() {
    for (dtype, rtol) in [(DType::F32, 1e-3), (DType::F16, 0.05)] {
        let folder = case(&group_norm(), &inputs(dtype));
        write(&folder, "c/grads.npz", &npz(&expected(), true));
        let entry = |name: &str| format!(r#"{{"name": "{name}", "rtol": {rtol}, "atol": {rtol}}}"#);
        let entries = ["dX", "dScale", "dBias"].map(entry).join(", ");
        let cases = format!(r#"[{{"name": "c", "gradients": [{entries}]}}]"#);
        write(&folder, "cases.json", cases.as_bytes());
        assert_passed(&folder);
    }
}

#[test]
fn tolerances_come_from_the_list_of_gradients() {
    let right = expected();
    let folder = case(&group_norm(), &inputs(DType::F64));
    let mut dy = numbers(ELEMENTS, 4);
    dy[0] += 0.25;
    write(
        &folder,
        "c/grads.npz",
        &with(&right, "dY", npy(&SHAPE, &dy)),
    );
    assert_failed(&folder, "c/grads.npz: gradient \"dBias\": element 0 is");
    let cases = |gradients: &str| {
        let cases = format!(r#"[{{"name": "c", "atol": 9, "gradients": [{gradients}]}}]"#);
        write(&folder, "cases.json", cases.as_bytes());
    };
    cases("");
    assert_failed(&folder, "gradient \"dBias\"");
    cases(r#"{"name": "dBias", "atol": 1}"#);
    assert_failed(&folder, "gradient \"dScale\"");
    let names = ["dX", "dScale", "dBias"];
    cases(
        &names
            .map(|name| format!(r#"{{"name": "{name}", "atol": 1}}"#))
            .join(", "),
    );
    assert_passed(&folder);
}

#[test]
fn gradients_are_checked_only_on_request() {
    let folder = case(&group_norm(), &inputs(DType::F64));
    write(&folder, "c/grads.npz", b"nothing");
    assert_eq!(outcome(folder.path(), false), CaseResult::Passed(None));
    assert_failed(&folder, "grads.npz: it is not a zip archive");
}

#[test]
fn each_data_set_may_have_its_own_gradients() {
    let folder = case(&group_norm(), &inputs(DType::F64));
    let mut others = inputs(DType::F64);
    others[0] = array(DType::F64, &SHAPE, &numbers(ELEMENTS, 9));
    add_set(&folder, "c/test_data_set_1", &group_norm(), &others);
    // A file in the case's folder belongs to the first set.
    write(&folder, "c/grads.npz", &npz(&expected(), false));
    assert_passed(&folder);
    write(
        &folder,
        "c/test_data_set_0/grads.npz",
        &npz(&expected(), false),
    );
    assert_passed(&folder);
    write(
        &folder,
        "c/test_data_set_1/grads.npz",
        &npz(&expected(), false),
    );
    assert_failed(&folder, "test_data_set_1/grads.npz: gradient \"dScale\"");
}

#[test]
fn forward_failures_are_reported_first() {
    let folder = case(&group_norm(), &inputs(DType::F64));
    write(&folder, "c/grads.npz", &npz(&expected(), false));
    let wrong = array(DType::F64, &SHAPE, &[0.0; ELEMENTS]);
    write(
        &folder,
        "c/test_data_set_0/output_0.pb",
        &write_tensor("Y", &wrong),
    );
    assert_failed(&folder, "output \"Y\"");
}

#[test]
fn errors_name_the_file() {
    let right = expected();
    let folder = case(&group_norm(), &inputs(DType::F64));
    let fails = |bytes: &[u8], part: &str| {
        write(&folder, "c/grads.npz", bytes);
        assert_failed(&folder, part);
    };
    fails(&npz(&right[1..], false), "grads.npz does not have dY");
    fails(&npz(&right[..1], false), "grads.npz expects nothing");
    let mut renamed = right.clone();
    renamed[3].0 = "dB";
    fails(
        &npz(&renamed, false),
        "an entry \"dB.npy\": expected dY, dX, dScale, dBias",
    );
    let flat = npy(&[ELEMENTS], &numbers(ELEMENTS, 4));
    fails(&with(&right, "dY", flat), "dY has the shape [24]");
    let wide = npy(&[1, CHANNELS], &numbers(CHANNELS, 4));
    fails(
        &with(&right, "dScale", wide),
        "gradient \"dScale\": the shape is [4]: expected [1, 4]",
    );
}

#[test]
fn unknown_gradients_are_failures() {
    let x = array(DType::F64, &[2], &[3.0, 4.0]);
    let folder = case(&lp_norm(), std::slice::from_ref(&x));
    // y = x / 5: dX = (dY - y * sum(dY * y)) / 5.
    let (dy, dx) = (npy(&[2], &[1.0, 0.0]), npy(&[2], &[0.128, -0.096]));
    write(
        &folder,
        "c/grads.npz",
        &npz(&[("dY", dy.clone()), ("dX", dx)], false),
    );
    assert_passed(&folder);
    let scale = npy(&[2], &[0.0, 0.0]);
    write(
        &folder,
        "c/grads.npz",
        &npz(&[("dY", dy.clone()), ("dScale", scale)], false),
    );
    assert_failed(&folder, "there is no dScale: the operator has dX");

    let inputs = ["X", "S", "G"];
    let skip = node("com.microsoft", "SkipLayerNormalization", 1, &inputs, &[]);
    let x = array(DType::F32, &[1, 2], &[3.0, 4.0]);
    let gamma = array(DType::F32, &[2], &[1.0, 1.0]);
    let folder = case(&skip, &[x.clone(), x, gamma]);
    let dy = npy(&[1, 2], &[1.0, 0.0]);
    write(
        &folder,
        "c/grads.npz",
        &npz(&[("dY", dy.clone()), ("dX", dy)], false),
    );
    assert_failed(&folder, "the operator has no gradient: it adds a residual");
}

#[test]
fn gradients_of_another_shape_are_typed_errors() {
    let node = Node::from_bytes(&lp_norm()).unwrap();
    let x = array(DType::F32, &[2], &[3.0, 4.0]);
    let prepared = Prepared::new(&node, std::slice::from_ref(&x)).unwrap();
    let error = prepared.gradient(&array(DType::F64, &[2, 1], &[1.0, 1.0]));
    assert_eq!(
        error.unwrap_err(),
        BindError::OutputGradient {
            expected: vec![2],
            actual: vec![2, 1]
        }
    );
    assert!(prepared.gradient(&x).is_ok());
}
