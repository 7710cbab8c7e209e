//! Random and mutated files: no reader may panic, hang or allocate without limit.
//!
//! `CUBENORM_FUZZ_SECONDS` is the time for each format; the default is 5.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Float64, npy, npz};
use cubenorm_core::DType;
use cubenorm_models::HostArray;
use cubenorm_models::dxdispatch::{Model, Options, Session};
use cubenorm_models::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use cubenorm_models::onnx::{Node, Prepared, read_tensor, write_tensor};
use cubenorm_models::verify::{self, Case, CaseResult, Kind, run_case};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use prost::Message;
use serde_json::{Value, json};

/// Maximum growth of the process in KiB, with files of less than a page. It covers the test threads
/// and a few times the limit below.
const MOST_KIB: u64 = 1 << 20;
/// Maximum bytes of resources.
const LIMIT: u64 = 1 << 20;

const MODEL: &str = r#"{
    // A model with every part of the format.
    "resources": {
        "In": { "initialValuesDataType": "FLOAT32", "initialValues": [1, -2.5e1, "nan", 4] },
        "Scale": { "initialValuesDataType": "FLOAT16", "initialValues": { "valueCount": 9, "value": 1 }, "sizeInBytes": 64 },
        "List": { "initialValues": [{ "type": "UINT8", "value": 255 }] },
        "Out": { "initialValuesDataType": "FLOAT32", "initialValues": { "valueCount": 8, "valueStart": 0, "valueDelta": 2 } },
    },
    "dispatchables": {
        "norm": {
            "type": "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION2",
            "desc": {
                "InputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2], "Strides": [1, 2] },
                "ScaleTensor": { "Type": "BUFFER", "Desc": { "DataType": "FLOAT32", "Sizes": [1, 2], "Flags": ["OWNED_BY_DML"] } },
                "OutputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2], "Strides": [4, 2], "TotalTensorSizeInBytes": 28 },
                "AxisCount": 1, "Axes": [1], "UseMean": true, "UseVariance": false, "Epsilon": 1e-5,
                "FusedActivation": { "Type": "ACTIVATION_SHRINK", "Bias": 0.5, "Threshold": 1 },
            },
            "bindings": { "ScaleTensor": { "name": "Scale", "elementOffset": 8 } },
        },
        "batch": {
            "type": "BATCH_NORMALIZATION",
            "desc": {
                "InputTensor": { "DataType": "FLOAT32", "Sizes": [1, 4] },
                "MeanTensor": { "DataType": "FLOAT32", "Sizes": [1, 1] },
                "VarianceTensor": { "DataType": "FLOAT32", "Sizes": [1, 4] },
                "ScaleTensor": { "DataType": "FLOAT32", "Sizes": [1, 4] },
                "BiasTensor": { "DataType": "FLOAT32", "Sizes": [1, 1] },
                "OutputTensor": { "DataType": "FLOAT32", "Sizes": [1, 4] },
                "Spatial": true, "Epsilon": 0.1,
            },
        },
    },
    "commands": [
        { "type": "dispatch", "dispatchable": "norm", "bindings": { "InputTensor": "In", "OutputTensor": ["Out"] } },
        { "type": "dispatch", "dispatchable": "batch", "bindings": {
            "InputTensor": "In", "MeanTensor": "Out", "VarianceTensor": "Out", "ScaleTensor": "In",
            "BiasTensor": { "name": "Out", "elementOffset": 4 }, "OutputTensor": "Out" } },
        { "type": "print", "resource": "Out" },
        { "type": "writeFile", "resource": "Out", "targetPath": "out.npy", "dimensions": [2, 4] },
    ],
}"#;

/// Words and numbers with a meaning in one of the formats.
const WORDS: [&str; 20] = [
    "-1",
    "0",
    "1e999",
    "18446744073709551615",
    "4294967296",
    "999999999",
    "0.5",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\"FLOAT64\"",
    "\"INT4\"",
    "\"UNKNOWN\"",
    "//",
    "/*",
    ",",
    "\"valueStart\":",
];

/// Parts of a model for each other operator: name, domain, inputs, outputs and an attribute.
const OPERATORS: [(&str, &str, usize, usize, &str); 9] = [
    ("BatchNormalization", "", 5, 3, "training_mode"),
    ("GroupNormalization", "", 3, 1, "num_groups"),
    ("InstanceNormalization", "", 3, 1, "consumed_inputs"),
    ("LpNormalization", "", 1, 1, "p"),
    ("MeanVarianceNormalization", "", 1, 1, "axes"),
    ("RMSNormalization", "", 2, 1, "axis"),
    ("SimplifiedLayerNormalization", "", 2, 2, "axis"),
    ("SkipLayerNormalization", "com.microsoft", 3, 4, "epsilon"),
    (
        "SkipSimplifiedLayerNormalization",
        "com.microsoft",
        3,
        4,
        "epsilon",
    ),
];

/// A model whose node reads the graph's only input, of 4 elements, in all places.
fn other_operator(
    (name, domain, inputs, outputs, attribute): (&str, &str, usize, usize, &str),
) -> Vec<u8> {
    let value = |name: String| ValueInfoProto {
        name: Some(name),
        r#type: None,
    };
    let attribute = match attribute {
        "axes" | "consumed_inputs" => AttributeProto {
            name: Some(attribute.to_owned()),
            ints: vec![0],
            ..AttributeProto::default()
        },
        "epsilon" => AttributeProto {
            name: Some(attribute.to_owned()),
            f: Some(0.5),
            ..AttributeProto::default()
        },
        _ => AttributeProto {
            name: Some(attribute.to_owned()),
            i: Some(1),
            ..AttributeProto::default()
        },
    };
    let outputs: Vec<String> = (0..outputs).map(|index| format!("Y{index}")).collect();
    let node = NodeProto {
        input: vec!["X".to_owned(); inputs],
        output: outputs.clone(),
        op_type: Some(name.to_owned()),
        attribute: vec![attribute],
        domain: Some(domain.to_owned()),
        ..NodeProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: Some(domain.to_owned()),
            version: Some(if domain.is_empty() { 23 } else { 1 }),
        }],
        graph: Some(GraphProto {
            node: vec![node],
            input: vec![value("X".to_owned())],
            output: outputs.into_iter().take(1).map(value).collect(),
            ..GraphProto::default()
        }),
    };
    model.encode_to_vec()
}

fn onnx() -> Vec<u8> {
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: None,
    };
    let axis = AttributeProto {
        name: Some("axis".to_owned()),
        i: Some(-1),
        r#type: Some(2),
        ..AttributeProto::default()
    };
    let node = NodeProto {
        input: vec!["X".to_owned(), "X".to_owned()],
        output: vec!["Y".to_owned(), "M".to_owned()],
        op_type: Some("LayerNormalization".to_owned()),
        attribute: vec![axis],
        ..NodeProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            node: vec![node],
            input: vec![value("X")],
            output: vec![value("Y"), value("M")],
            ..GraphProto::default()
        }),
    };
    model.encode_to_vec()
}

fn tensor() -> Vec<u8> {
    let array = HostArray::from_f64(DType::F32, [4], &[1.0, 2.0, 3.0, 4.0]);
    write_tensor("X", &array.unwrap())
}

/// One change to a file.
#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<usize>;
    let word = prop::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec());
    let bytes = prop::collection::vec(any::<u8>(), 1..12);
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        3 => (at(), word).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (at(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        2 => (at(), 1..20usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (at(), 1..60usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
        1 => at().prop_map(Edit::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    let place = |at: usize| at % (bytes.len() + 1);
    match edit {
        Edit::Set(at, byte) => {
            let at = place(*at);
            if let Some(place) = bytes.get_mut(at) {
                *place = *byte;
            }
        }
        Edit::Insert(at, inserted) => {
            let at = place(*at);
            drop(bytes.splice(at..at, inserted.iter().copied()));
        }
        Edit::Remove(at, count) => {
            let at = place(*at);
            let end = (at + count).min(bytes.len());
            drop(bytes.drain(at..end));
        }
        Edit::Repeat(at, count) => {
            let at = place(*at);
            let end = (at + count).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        Edit::Cut(at) => bytes.truncate(place(*at)),
    }
}

/// Collects JSON pointers to all values in a value.
fn pointers(value: &Value, here: String, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(array) => array
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        pointers(child, format!("{here}/{key}"), found);
    }
    found.push(here);
}

/// The model with some parts replaced by other parts or by unusual values.
fn replaced() -> impl Strategy<Value = Vec<u8>> {
    let mut text = MODEL.to_owned();
    json_strip_comments::strip_comments_in_place(&mut text).unwrap();
    let model: Value = serde_json::from_str(&text).unwrap();
    let mut places = Vec::new();
    pointers(&model, String::new(), &mut places);
    let mut values: Vec<Value> = places
        .iter()
        .filter_map(|p| model.pointer(p))
        .cloned()
        .collect();
    values.extend([
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(9),
        json!(1e-40),
        json!(1e300),
        json!(u64::MAX),
        json!(u32::MAX),
        json!(1_000_000_000),
        json!(null),
        json!([]),
        json!({}),
        json!(""),
        json!(true),
        json!("-inf"),
        json!([4294967295u32, 4294967295u32]),
        json!([0, 0]),
        json!([1, 1, 1, 2, 2]),
        json!("ACTIVATION_CELU"),
        json!("MEAN_VARIANCE_NORMALIZATION"),
        json!("OWNED_BY_DML"),
        json!("BATCH_NORMALIZATION_TRAINING"),
        json!("FLOAT16"),
        json!("INT64"),
        json!("INT4"),
    ]);
    let change = (prop::sample::select(places), prop::sample::select(values));
    prop::collection::vec(change, 1..4).prop_map(move |changes| {
        let mut model = model.clone();
        for (place, value) in changes {
            if let Some(part) = model.pointer_mut(&place) {
                *part = value;
            }
        }
        model.to_string().into_bytes()
    })
}

/// Peak address space of the process in KiB, if the system reports it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPeak:"))?;
    peak.trim().strip_suffix(" kB")?.parse().ok()
}

/// Changed copies of `valid`, and noise.
fn changed(valid: &[u8]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let valid = valid.to_vec();
    let edited = prop::collection::vec(edit(), 1..6).prop_map(move |edits| {
        let mut bytes = valid.clone();
        edits.iter().for_each(|edit| apply(&mut bytes, edit));
        bytes
    });
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![9 => edited, 1 => noise]
}

/// Tries `check` on inputs until the time is up.
fn fuzz(input: impl Strategy<Value = Vec<u8>>, check: impl Fn(&[u8])) {
    let seconds = std::env::var("CUBENORM_FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(5.0);
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let before = peak_kib();
    let mut runs = 0;
    while Instant::now() < deadline {
        let config = Config {
            cases: 256,
            failure_persistence: None,
            ..Config::default()
        };
        // The same inputs on every machine; their number depends on its speed.
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&u64::to_le_bytes(runs));
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let result = runner.run(&input, |bytes| {
            let start = Instant::now();
            check(&bytes);
            prop_assert!(start.elapsed() < Duration::from_secs(5), "it took too long");
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        runs += 1;
    }
    if let (Some(before), Some(after)) = (before, peak_kib()) {
        assert!(
            after - before < MOST_KIB,
            "it grew by {} KiB",
            after - before
        );
    }
    println!("{} inputs", runs * 256);
}

#[test]
fn the_valid_files_are_valid() {
    let model = Model::parse(MODEL.as_bytes(), Path::new(""), LIMIT).unwrap();
    Session::new(&model).unwrap();
    let (_, array) = read_tensor(&tensor()).unwrap();
    Prepared::new(&Node::from_bytes(&onnx()).unwrap(), &[array]).unwrap();
}

#[test]
fn dxdispatch_models_are_robust() {
    fuzz(
        prop_oneof![changed(MODEL.as_bytes()), replaced()],
        |bytes| {
            let Ok(model) = Model::parse(bytes, Path::new(""), LIMIT) else {
                return;
            };
            let Ok(mut session) = Session::new(&model) else {
                return;
            };
            let options = Options {
                writes_files: false,
                ..Options::default()
            };
            let run = session.run(&Float64::new(), &options, &mut |event| {
                drop(event.to_string());
            });
            run.expect("accepted files run");
        },
    );
}

#[test]
fn onnx_models_are_robust() {
    let shapes: [&[usize]; 4] = [&[4], &[1, 4], &[4, 1, 1], &[1, 1, 2, 2]];
    let arrays =
        shapes.map(|shape| HostArray::from_f64(DType::F32, shape, &[1.0, 2.0, 3.0, 4.0]).unwrap());
    let operators = OPERATORS.map(other_operator).to_vec();
    for model in &operators {
        Node::from_bytes(model).unwrap();
    }
    let others = prop::sample::select(operators).prop_flat_map(|model| changed(&model));
    fuzz(prop_oneof![changed(&onnx()), others], |bytes| {
        let Ok(node) = Node::from_bytes(bytes) else {
            return;
        };
        for array in &arrays {
            run_forward_and_back(&node, array);
        }
    });
}

/// Runs a node on an array, and backward from its result, if it accepts them.
fn run_forward_and_back(node: &Node, array: &HostArray) {
    if let Ok(prepared) = Prepared::new(node, std::slice::from_ref(array)) {
        let (outputs, _) = prepared
            .run(&Float64::new(), 1)
            .expect("accepted files run");
        let dy = outputs.first().map(|(_, output)| output);
        if let Some(Ok(backward)) = dy.map(|dy| prepared.gradient(dy)) {
            backward
                .run(&Float64::new(), 1)
                .expect("accepted files run");
        }
    }
}

#[test]
fn tensors_are_robust() {
    let node = Node::from_bytes(&onnx()).unwrap();
    fuzz(changed(&tensor()), |bytes| {
        let Ok((name, array)) = read_tensor(bytes) else {
            return;
        };
        // Prost decodes the same values.
        let decoded = TensorProto::decode(bytes).expect("accepted bytes are a message");
        assert_eq!(decoded.name.unwrap_or_default(), name);
        assert!(
            decoded
                .dims
                .iter()
                .map(|&size| size as usize)
                .eq(array.shape.iter().copied())
        );
        if let Some(raw) = decoded.raw_data.filter(|raw| !raw.is_empty()) {
            assert_eq!(raw, array.bytes);
        }
        drop(array.to_f64());
        let Ok(prepared) = Prepared::new(&node, std::slice::from_ref(&array)) else {
            return;
        };
        prepared
            .run(&Float64::new(), 1)
            .expect("accepted files run");
        if let Ok(backward) = prepared.gradient(&array) {
            backward
                .run(&Float64::new(), 1)
                .expect("accepted files run");
        }
    });
}

#[test]
fn array_files_are_robust() {
    let folder = tempfile::tempdir().unwrap();
    let model = br#"{
        "resources": { "In": { "initialValues": { "sourcePath": "in.npy" } } },
        "dispatchables": {},
        "commands": [{ "type": "print", "resource": "In" }]
    }"#;
    let mut valid = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
    valid.extend(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }           \n");
    valid.extend([0; 8]);
    fuzz(changed(&valid), |bytes| {
        std::fs::write(folder.path().join("in.npy"), bytes).unwrap();
        let Ok(model) = Model::parse(model, folder.path(), LIMIT) else {
            return;
        };
        drop(Session::new(&model));
    });
}

#[test]
fn gradient_archives_are_robust() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("test_data_set_0");
    std::fs::create_dir(&set).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("model.onnx", &onnx());
    write("test_data_set_0/input_0.pb", &tensor());
    let (_, array) = read_tensor(&tensor()).unwrap();
    let prepared = Prepared::new(&Node::from_bytes(&onnx()).unwrap(), &[array]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    for (index, (name, output)) in outputs.iter().enumerate() {
        let file = format!("test_data_set_0/output_{index}.pb");
        write(&file, &write_tensor(name, output));
    }
    let dy = HostArray::from_f64(DType::F32, [4], &[1.0, 0.0, -1.0, 0.5]).unwrap();
    let backward = prepared.gradient(&dy).unwrap();
    let (gradients, _) = backward.run(&Float64::new(), 1).unwrap();
    let mut arrays = vec![("dY", npy(&[4], &dy.to_f64().unwrap()))];
    for (name, array) in &gradients {
        arrays.push((name, npy(&array.shape, &array.to_f64().unwrap())));
    }
    let case = Case {
        path: folder.path().to_owned(),
        kind: Kind::Onnx,
        must_be_refused: false,
        broken: None,
    };
    let options = verify::Options {
        gradients: true,
        ..verify::Options::default()
    };
    let check = |bytes: &[u8]| {
        write("grads.npz", bytes);
        run_case(&case, &Float64::new(), &options)
    };
    for is_deflated in [false, true] {
        let valid = npz(&arrays, is_deflated);
        assert_eq!(check(&valid), CaseResult::Passed(None));
    }

    let whole = [false, true].map(|is_deflated| changed(&npz(&arrays, is_deflated)));
    let [stored, deflated] = whole;
    // Changed before packing, so that the checksums are right.
    let (_, dy) = arrays[0].clone();
    let within = changed(&dy).prop_map(move |dy| {
        let mut arrays = arrays.clone();
        arrays[0].1 = dy;
        npz(&arrays, false)
    });
    fuzz(prop_oneof![stored, deflated, within], |bytes| {
        if let CaseResult::Failed(reason) = check(bytes) {
            assert!(!reason.contains("panicked"), "{reason}");
        }
    });
}
