//! DxDispatch models: accepted forms, results and errors.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::Float64;
use cubenorm_models::dxdispatch::{
    Command, Event, InitialValues, Model, ModelError, Options, Session,
};
use cubenorm_models::{ExecuteError, Executor, FileAccess, HostArray, Run};
use cubenorm_operators::{Program, Slot};
use serde_json::{Value, json};

const LIMIT: u64 = 1 << 20;

/// A layer normalization of [2, 2] in float32 with a scale.
fn layer_norm() -> Value {
    json!({
        "resources": {
            "In": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 3, -2, 2] },
            "Scale": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 10] },
            "Out": {
                "initialValuesDataType": "FLOAT32",
                "initialValues": { "valueCount": 4, "value": 0 }
            }
        },
        "dispatchables": {
            "norm": {
                "type": "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION1",
                "desc": {
                    "InputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2] },
                    "ScaleTensor": { "DataType": "FLOAT32", "Sizes": [1, 2] },
                    "OutputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2] },
                    "AxisCount": 1,
                    "Axes": [1],
                    "NormalizeVariance": true,
                    "Epsilon": 0
                }
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "norm",
                "bindings": { "InputTensor": "In", "ScaleTensor": "Scale", "OutputTensor": "Out" }
            },
            { "type": "print", "resource": "Out" }
        ]
    })
}

/// `layer_norm` with the value at a JSON pointer replaced, added, or removed by null.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut model = layer_norm();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("it is a pointer");
        let parent = model.pointer_mut(parent).expect("its parent is there");
        match parent {
            Value::Object(map) if value.is_null() => drop(map.remove(key)),
            Value::Object(map) => drop(map.insert(key.to_owned(), value.clone())),
            Value::Array(array) => array[key.parse::<usize>().unwrap()] = value.clone(),
            _ => panic!("{pointer} leads nowhere"),
        }
    }
    model
}

fn parse(model: &Value) -> Result<Model, ModelError> {
    Model::parse(model.to_string().as_bytes(), Path::new(""), LIMIT)
}

/// Runs a model and returns the lines it prints.
fn printed(model: &Value) -> Result<Vec<String>, ModelError> {
    let model = parse(model)?;
    let mut session = Session::new(&model)?;
    let mut lines = Vec::new();
    let run = session.run(&Float64::new(), &Options::default(), &mut |event| {
        if let Event::Printed { .. } = event {
            lines.push(event.to_string());
        }
    });
    run.expect("it runs");
    Ok(lines)
}

/// Error of a model that is refused before anything runs.
fn refused(changes: &[(&str, Value)]) -> String {
    let model = with(changes);
    let error = parse(&model).and_then(|model| Session::new(&model).map(drop));
    match error {
        Err(error) => error.to_string(),
        Ok(()) => panic!("it is taken: {model}"),
    }
}

#[test]
fn models_run_and_print() {
    assert_eq!(
        printed(&layer_norm()).unwrap(),
        ["Resource 'Out': -1, 10, -1, 10"]
    );
}

#[test]
fn accepts_comments_and_trailing_commas() {
    let text = layer_norm().to_string();
    let text = format!("// before\n{}, /* within */ }}", &text[..text.len() - 1]);
    assert!(Model::parse(text.as_bytes(), Path::new(""), LIMIT).is_ok());
    assert!(Model::parse(b"{ \"resources\": ", Path::new(""), LIMIT).is_err());
    assert!(Model::parse(b"\xff", Path::new(""), LIMIT).is_err());
    let error = Model::parse(b"{ \"resources\": /1 }", Path::new(""), LIMIT).unwrap_err();
    assert!(matches!(error, ModelError::Comment), "{error}");
}

#[test]
fn levels_and_prefixes_may_be_left_out() {
    let tensor = json!({
        "Type": "DML_TENSOR_TYPE_BUFFER",
        "Desc": {
            "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
            "Flags": "DML_TENSOR_FLAG_NONE",
            "DimensionCount": 2,
            "Sizes": [2, 2],
            "Strides": [2, 1],
            "TotalTensorSizeInBytes": 16,
            "GuaranteedBaseOffsetAlignment": 0
        }
    });
    let short = json!({ "Type": "ACTIVATION_LEAKY_RELU", "Alpha": 0.5 });
    let long = json!({ "Type": "DML_OPERATOR_ACTIVATION_LEAKY_RELU", "Desc": { "Alpha": 0.5 } });
    for activation in [short, long] {
        let changes = [
            (
                "/dispatchables/norm/type",
                json!("MEAN_VARIANCE_NORMALIZATION1"),
            ),
            ("/dispatchables/norm/desc/InputTensor", tensor.clone()),
            ("/dispatchables/norm/desc/FusedActivation", activation),
            ("/dispatchables/norm/desc/Unknown", json!(7)),
        ];
        let mut model = with(&changes);
        let lines = printed(&model).unwrap();
        assert_eq!(lines, ["Resource 'Out': -0.5, 10, -0.5, 10"]);
        let norm = model["dispatchables"]["norm"].as_object_mut().unwrap();
        let desc = norm.remove("desc").unwrap();
        norm.insert("Desc".to_owned(), desc);
        assert_eq!(printed(&model).unwrap(), lines);
    }
}

#[test]
fn every_initializer_yields_its_values() {
    let cases = [
        (
            json!({ "initialValuesDataType": "FLOAT16", "initialValues": [1.5, "nan", "-Inf"] }),
            "1.5, nan, -inf",
        ),
        (
            json!({ "initialValuesDataType": "INT8", "initialValues": { "valueCount": 2, "value": -3 } }),
            "-3, -3",
        ),
        (
            json!({ "initialValuesDataType": "FLOAT32", "initialValues": { "valueCount": 4, "valueStart": 1, "valueDelta": 2.5 } }),
            "1, 3.5, 6, 8.5",
        ),
        (
            json!({ "initialValuesDataType": "UINT8", "initialValues": { "valueCount": 3, "initialValue": 254, "valueDelta": 1 } }),
            "254, 255, 0",
        ),
        (
            json!({ "initialValuesDataType": "FLOAT32", "initialValues": [1, 2], "sizeInBytes": 256 }),
            "1, 2",
        ),
        (
            json!({ "initialValuesDataType": "UINT64", "initialValues": [u64::MAX] }),
            "18446744073709551615",
        ),
    ];
    for (resource, expected) in cases {
        let changes = [
            ("/resources/In", resource.clone()),
            ("/commands", json!([{ "type": "print", "resource": "In" }])),
        ];
        let lines = printed(&with(&changes)).unwrap();
        assert_eq!(lines, [format!("Resource 'In': {expected}")], "{resource}");
    }
}

#[test]
fn lists_of_several_types_can_be_bound_only() {
    let element = |value: f32| json!({ "name": "x", "type": "FLOAT32", "value": value });
    let list: Vec<Value> = [1.0, 3.0, -2.0, 2.0].map(element).to_vec();
    let changes = [("/resources/In", json!({ "initialValues": list }))];
    let model = with(&changes);
    assert_eq!(printed(&model).unwrap(), ["Resource 'Out': -1, 10, -1, 10"]);
    let show = ("/commands/1", json!({ "type": "print", "resource": "In" }));
    let error = refused(&[changes[0].clone(), show]);
    assert!(
        error.contains("\"In\"") && error.contains("several types"),
        "{error}"
    );
}

#[test]
fn offsets_count_elements_of_the_resource() {
    let changes = [
        (
            "/resources/Scale",
            json!({ "initialValuesDataType": "FLOAT16", "initialValues": { "valueCount": 16, "value": 1 } }),
        ),
        // 1.0 and 2.0 in binary32, after 16 bytes.
        (
            "/resources/Scale/initialValues",
            json!([0, 0, 0, 0, 0, 0, 0, 0, 0, 1.875, 0, 2.0]),
        ),
        (
            "/commands/0/bindings/ScaleTensor",
            json!([{ "name": "Scale", "elementOffset": 8 }]),
        ),
    ];
    assert_eq!(
        printed(&with(&changes)).unwrap(),
        ["Resource 'Out': -1, 2, -1, 2"]
    );
}

#[test]
fn gaps_of_strided_outputs_keep_their_contents() {
    let changes = [
        (
            "/resources/Out/initialValues",
            json!({ "valueCount": 8, "value": 7 }),
        ),
        (
            "/dispatchables/norm/desc/OutputTensor",
            json!({ "DataType": "FLOAT32", "Sizes": [2, 2], "Strides": [4, 2] }),
        ),
    ];
    let lines = printed(&with(&changes)).unwrap();
    assert_eq!(lines, ["Resource 'Out': -1, 7, 10, 7, -1, 7, 10, 7"]);
}

#[test]
fn two_outputs_may_interleave_in_one_resource() {
    let tensor = |sizes: Value| json!({ "DataType": "FLOAT32", "Sizes": sizes });
    let strided = json!({ "DataType": "FLOAT32", "Sizes": [1, 2], "Strides": [8, 8] });
    let model = json!({
        "resources": {
            "In": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 5, 3, 9] },
            "One": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 1] },
            "Out": { "initialValuesDataType": "FLOAT32", "initialValues": [0, 0, 0, 0] },
            "Both": {
                "initialValuesDataType": "FLOAT32",
                "initialValues": { "valueCount": 13, "value": 0 }
            }
        },
        "dispatchables": { "train": {
            "type": "BATCH_NORMALIZATION_TRAINING",
            "desc": {
                "InputTensor": tensor(json!([2, 2])),
                "ScaleTensor": tensor(json!([1, 2])),
                "BiasTensor": tensor(json!([1, 2])),
                "OutputTensor": tensor(json!([2, 2])),
                "OutputMeanTensor": strided,
                "OutputVarianceTensor": strided,
                "Epsilon": 1e-5
            }
        } },
        "commands": [
            { "type": "dispatch", "dispatchable": "train", "bindings": {
                "InputTensor": "In", "ScaleTensor": "One", "BiasTensor": "One", "OutputTensor": "Out",
                "OutputMeanTensor": "Both",
                "OutputVarianceTensor": { "name": "Both", "elementOffset": 4 }
            } },
            { "type": "print", "resource": "Both" }
        ]
    });
    let lines = printed(&model).unwrap();
    assert_eq!(
        lines,
        ["Resource 'Both': 2, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 4"]
    );
}

#[test]
fn owned_tensors_keep_their_initial_contents() {
    let mut model = with(&[
        (
            "/dispatchables/norm/desc/ScaleTensor/Flags",
            json!(["OWNED_BY_DML"]),
        ),
        (
            "/dispatchables/norm/bindings",
            json!({ "ScaleTensor": "Scale" }),
        ),
        ("/resources/Scale/initialValues", json!([1, 10, 0, 0])),
        (
            "/commands/0/bindings",
            json!({ "InputTensor": "In", "OutputTensor": "Scale" }),
        ),
    ]);
    let again = json!({
        "type": "dispatch",
        "dispatchable": "norm",
        "bindings": { "InputTensor": "In", "OutputTensor": "Out" }
    });
    model["commands"].as_array_mut().unwrap().insert(1, again);
    assert_eq!(printed(&model).unwrap(), ["Resource 'Out': -1, 10, -1, 10"]);
}

#[test]
fn files_are_relative_to_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let values: Vec<u8> = [1f32, 3.0, -2.0, 2.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    std::fs::write(at("in.dat"), &values).unwrap();
    let model = with(&[
        (
            "/resources/In/initialValues",
            json!({ "sourcePath": "in.dat" }),
        ),
        (
            "/commands/1",
            json!({ "type": "writeFile", "resource": "Out", "targetPath": "out.npy", "dimensions": [2, 2] }),
        ),
    ]);
    std::fs::write(at("model.json"), model.to_string()).unwrap();
    let run = |path: &Path| {
        let model = Model::read(path)?;
        let mut session = Session::new(&model)?;
        session
            .run(&Float64::new(), &Options::default(), &mut |_| ())
            .expect("it runs");
        Ok::<_, ModelError>(session.contents("Out").unwrap())
    };
    run(&at("model.json")).unwrap();

    let again = with(&[
        (
            "/resources/In",
            json!({ "initialValues": { "sourcePath": "out.npy" } }),
        ),
        ("/resources/Scale/initialValues", json!([1, 1])),
    ]);
    std::fs::write(at("again.json"), again.to_string()).unwrap();
    let result: HostArray = run(&at("again.json")).unwrap();
    assert_eq!(result.to_f64().unwrap(), [-1.0, 1.0, -1.0, 1.0]);

    let wrong = with(&[(
        "/resources/In",
        json!({ "initialValuesDataType": "FLOAT16", "initialValues": { "sourcePath": "out.npy" } }),
    )]);
    std::fs::write(at("wrong.json"), wrong.to_string()).unwrap();
    let error = run(&at("wrong.json")).unwrap_err().to_string();
    assert!(
        error.contains("out.npy") && error.contains("float16"),
        "{error}"
    );
}

/// Folders `model` and `other`, for a model that writes `In` to a path.
struct Written {
    root: tempfile::TempDir,
}

impl Written {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["model", "other"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    /// Runs the model with a command for each target.
    fn run(&self, targets: &[&str], access: &FileAccess) -> Result<(), String> {
        let command =
            |target: &&str| json!({ "type": "writeFile", "resource": "In", "targetPath": target });
        let commands: Vec<Value> = targets.iter().map(command).collect();
        let model = with(&[("/commands", json!(commands))]).to_string();
        let folder = self.path("model");
        let model = Model::parse_with(model.as_bytes(), &folder, LIMIT, access);
        let model = model.map_err(|error| error.to_string())?;
        let mut session = Session::new(&model).unwrap();
        let run = session.run(&Float64::new(), &Options::default(), &mut |_| ());
        run.map_err(|error| error.to_string())
    }
}

#[test]
fn files_are_written_below_the_folder_only() {
    let written = Written::new();
    let access = FileAccess::new();
    written
        .run(&["out.dat", "./sub/../twice.dat"], &access)
        .unwrap();
    assert_eq!(
        std::fs::read(written.path("model/out.dat")).unwrap().len(),
        16
    );
    let absolute = written.path("other/out.dat").display().to_string();
    for target in ["../other/out.dat", &absolute] {
        let error = written.run(&[target], &access).unwrap_err();
        assert!(error.contains("--write-under DIR"), "{error}");
        assert!(!written.path("other/out.dat").exists());
        let wider = FileAccess::new().write_under(written.path("other"));
        written.run(&[target], &wider).unwrap();
        std::fs::remove_file(written.path("other/out.dat")).unwrap();
    }
    // Neither the folder of the option itself nor its parent.
    let wider = FileAccess::new().write_under(written.path("other"));
    for target in ["../other", "../out.dat", "../other/../out.dat"] {
        assert!(written.run(&[target], &wider).is_err(), "{target}");
    }
}

#[test]
fn files_that_exist_are_never_overwritten() {
    let written = Written::new();
    let access = FileAccess::new();
    let out = written.path("model/out.dat");
    std::fs::write(&out, "mine").unwrap();
    // Before the first command.
    let error = written.run(&["new.dat", "out.dat"], &access).unwrap_err();
    assert!(
        error.contains("command 1") && error.contains("exists already"),
        "{error}"
    );
    assert_eq!(std::fs::read(&out).unwrap(), b"mine");
    assert!(!written.path("model/new.dat").exists());
    // A session overwrites its own, and another session does not.
    written.run(&["new.dat", "./new.dat"], &access).unwrap();
    assert!(written.run(&["new.dat"], &access).is_err());
}

#[cfg(unix)]
#[test]
fn links_lead_no_write_outside() {
    use std::os::unix::fs::symlink;
    let written = Written::new();
    std::fs::write(written.path("other/mine"), "mine").unwrap();
    symlink(written.path("other"), written.path("model/folder")).unwrap();
    symlink(written.path("other/mine"), written.path("model/file")).unwrap();
    symlink(written.path("other/new"), written.path("model/dangling")).unwrap();
    for target in ["folder/out.dat", "folder/mine", "file", "dangling"] {
        let error = written.run(&[target], &FileAccess::new()).unwrap_err();
        assert!(error.contains("outside"), "{target}: {error}");
    }
    assert_eq!(std::fs::read(written.path("other/mine")).unwrap(), b"mine");
    assert_eq!(written.path("other").read_dir().unwrap().count(), 1);
    let wider = FileAccess::new().write_under(written.path("other"));
    written.run(&["folder/out.dat"], &wider).unwrap();
}

#[test]
fn sources_outside_need_an_option() {
    let written = Written::new();
    std::fs::write(written.path("other/in.dat"), [0; 16]).unwrap();
    let parse = |source: &str, access: &FileAccess| {
        let values = json!({ "sourcePath": source });
        let model = with(&[("/resources/In/initialValues", values)]).to_string();
        Model::parse_with(model.as_bytes(), &written.path("model"), LIMIT, access)
    };
    let absolute = written.path("other/in.dat").display().to_string();
    for source in ["../other/in.dat", &absolute, "../other/none.dat"] {
        let error = parse(source, &FileAccess::new()).unwrap_err();
        assert!(matches!(error, ModelError::ReadOutside { .. }), "{error}");
        let read = parse(source, &FileAccess::new().read_anywhere(true));
        assert_eq!(read.is_ok(), source != "../other/none.dat");
    }
    #[cfg(unix)]
    {
        let link = written.path("model/link.dat");
        std::os::unix::fs::symlink(written.path("other/in.dat"), link).unwrap();
        let error = parse("link.dat", &FileAccess::new()).unwrap_err();
        assert!(matches!(error, ModelError::ReadOutside { .. }), "{error}");
    }
}

#[test]
fn totals_are_checked_before_each_read() {
    let folder = tempfile::tempdir().unwrap();
    let size = LIMIT as usize / 2;
    std::fs::write(folder.path().join("a.dat"), vec![0; size]).unwrap();
    // Reading this file would show that it is not an array.
    std::fs::write(folder.path().join("b.npy"), vec![0; size + (1 << 17)]).unwrap();
    let resource = |name: &str| json!({ "initialValuesDataType": "UINT8", "initialValues": { "sourcePath": name } });
    let model = |second: &str| {
        let resources = json!({ "A": resource("a.dat"), "B": resource(second) });
        let model = json!({ "resources": resources, "dispatchables": {}, "commands": [] });
        Model::parse(model.to_string().as_bytes(), folder.path(), LIMIT)
    };
    let error = model("b.npy").unwrap_err();
    assert!(matches!(error, ModelError::TooLarge { .. }), "{error}");
    // A file that is named twice is read once and counts twice.
    let twice = model("a.dat").unwrap();
    let bytes = |name: &str| match &twice.resources[name].initial_values {
        InitialValues::Bytes(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&bytes("A"), &bytes("B")));
    std::fs::write(folder.path().join("a.dat"), vec![0; size + 1]).unwrap();
    let error = model("a.dat").unwrap_err();
    assert!(matches!(error, ModelError::TooLarge { .. }), "{error}");
}

#[test]
fn owned_tensors_are_limited_together() {
    // Each keeps 1 GiB of the same resource.
    let dispatchable = json!({
        "type": "MEAN_VARIANCE_NORMALIZATION1",
        "desc": {
            "InputTensor": { "DataType": "FLOAT32", "Sizes": [1, 268435456], "Flags": "OWNED_BY_DML" },
            "OutputTensor": { "DataType": "FLOAT32", "Sizes": [1, 268435456] },
            "AxisCount": 1, "Axes": [1], "NormalizeVariance": true, "Epsilon": 0
        },
        "bindings": { "InputTensor": "In" }
    });
    let mut model = json!({
        "resources": { "In": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": { "valueCount": 268435456, "value": 1 }
        } },
        "dispatchables": {},
        "commands": []
    });
    for index in 0..5 {
        model["dispatchables"][index.to_string()] = dispatchable.clone();
    }
    let text = model.to_string();
    let model = Model::parse(text.as_bytes(), Path::new(""), Model::MAX_BYTES).unwrap();
    let error = Session::new(&model).unwrap_err();
    assert!(matches!(error, ModelError::TooLarge { .. }), "{error}");
}

#[test]
fn texts_are_limited() {
    let text = " ".repeat(Model::MAX_TEXT_BYTES + 1);
    let error = Model::parse(text.as_bytes(), Path::new(""), LIMIT).unwrap_err();
    assert!(matches!(error, ModelError::LongText { .. }), "{error}");
}

#[test]
fn float16_values_are_rounded_once() {
    // Above the middle of 1 and the next f16 by less than one f32 step: 1 + 2^-11 + 2^-40.
    let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    let changes = [
        (
            "/resources/In",
            json!({ "initialValuesDataType": "FLOAT16", "initialValues": [value, -value] }),
        ),
        ("/commands", json!([{ "type": "print", "resource": "In" }])),
    ];
    let lines = printed(&with(&changes)).unwrap();
    assert_eq!(lines, ["Resource 'In': 1.0009766, -1.0009766"]);
}

#[test]
fn errors_name_place_and_value() {
    let huge = json!({ "valueCount": 1_000_000_000_000_000_000u64, "value": 0 });
    let cases: &[(&str, Value, &[&str])] = &[
        (
            "/resources/In/initialValuesDataType",
            json!("FLOAT8"),
            &["\"In\"", "data type", "FLOAT8"],
        ),
        (
            "/resources/In/initialValuesDataType",
            json!(null),
            &["\"In\"", "object", "1"],
        ),
        (
            "/resources/In/initialValues",
            json!([]),
            &["\"In\"", "at least one value"],
        ),
        (
            "/resources/In/initialValues",
            json!([1, "x"]),
            &["\"In\"", "\"x\"", "a number"],
        ),
        (
            "/resources/In/initialValues",
            json!([true]),
            &["\"In\"", "true"],
        ),
        (
            "/resources/In/initialValues",
            json!("deferred"),
            &["\"In\"", "deferred"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "value": 0 }),
            &["\"In\"", "valueCount"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "valueCount": -1, "value": 0 }),
            &["valueCount", "-1"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "valueCount": 1.5, "value": 0 }),
            &["valueCount", "1.5"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "valueCount": 1e300, "value": 0 }),
            &["valueCount"],
        ),
        (
            "/resources/In/initialValues",
            huge,
            &["\"In\"", "4000000000000000000", "at most"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!(vec![1; 65]),
            &["InputTensor: Sizes", "an array of 65", "at most 64"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "sourcePath": "/etc/hostname" }),
            &["\"In\"", "/etc/hostname", "--read-anywhere"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "sourcePath": "../../../../../../Cargo.toml" }),
            &["\"In\"", "outside", "--read-anywhere"],
        ),
        (
            "/resources/In/initialValues",
            json!({ "sourcePath": "no/such.npy" }),
            &["\"In\"", "no/such.npy"],
        ),
        (
            "/resources/In/sizeInBytes",
            json!(4),
            &["\"In\"", "sizeInBytes is 4", "16 bytes"],
        ),
        (
            "/resources/In/sizeInBytes",
            json!(u64::MAX),
            &["\"In\"", "at most"],
        ),
        (
            "/resources/In/sizeInBytes",
            json!(-4),
            &["\"In\"", "sizeInBytes", "-4"],
        ),
        ("/resources", json!([]), &["resources", "an object"]),
        ("/commands", json!(null), &["commands"]),
        (
            "/dispatchables/norm/type",
            json!("DML_OPERATOR_GEMM"),
            &["\"norm\"", "operator", "GEMM"],
        ),
        (
            "/dispatchables/norm/type",
            json!("hlsl"),
            &["\"norm\"", "hlsl"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor",
            json!(null),
            &["\"norm\"", "InputTensor"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/DataType",
            json!("FLOAT99"),
            &["InputTensor", "FLOAT99"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/DataType",
            json!("INT32"),
            &["InputTensor", "INT32"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/DataType",
            json!("FLOAT16"),
            &["norm", "FLOAT16"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!([2, -2]),
            &["InputTensor: Sizes", "-2"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!([2, 2.5]),
            &["InputTensor: Sizes", "2.5"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!([2, 0]),
            &["InputTensor", "0"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!([]),
            &["InputTensor", "rank 0"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Sizes",
            json!([1, 1, 1, 1, 1, 1, 1, 2, 2]),
            &["InputTensor", "rank 9"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Strides",
            json!([2]),
            &["InputTensor", "strides"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/DimensionCount",
            json!(3),
            &["InputTensor", "DimensionCount is 3"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/TotalTensorSizeInBytes",
            json!(8),
            &["InputTensor", "8"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/TotalTensorSizeInBytes",
            json!(64),
            &["InputTensor", "64 bytes", "\"In\"", "16"],
        ),
        (
            "/dispatchables/norm/desc/InputTensor/Flags",
            json!("SHINY"),
            &["Flags", "SHINY"],
        ),
        (
            "/dispatchables/norm/desc/OutputTensor/Flags",
            json!("OWNED_BY_DML"),
            &["OutputTensor", "OWNED_BY_DML"],
        ),
        (
            "/dispatchables/norm/desc/OutputTensor/Sizes",
            json!([2, 3]),
            &["OutputTensor"],
        ),
        (
            "/dispatchables/norm/desc/OutputTensor/Strides",
            json!([0, 1]),
            &["OutputTensor"],
        ),
        (
            "/dispatchables/norm/desc/ScaleTensor/Sizes",
            json!([1, 3]),
            &["ScaleTensor"],
        ),
        (
            "/dispatchables/norm/desc/AxisCount",
            json!(2),
            &["\"norm\"", "AxisCount is 2", "1"],
        ),
        (
            "/dispatchables/norm/desc/AxisCount",
            json!(null),
            &["\"norm\"", "AxisCount"],
        ),
        (
            "/dispatchables/norm/desc/Axes",
            json!([2]),
            &["\"norm\"", "Axes"],
        ),
        (
            "/dispatchables/norm/desc/NormalizeVariance",
            json!(1),
            &["NormalizeVariance", "true or false", "1"],
        ),
        (
            "/dispatchables/norm/desc/NormalizeVariance",
            json!(null),
            &["NormalizeVariance"],
        ),
        (
            "/dispatchables/norm/desc/Epsilon",
            json!("NaN"),
            &["\"norm\"", "psilon"],
        ),
        (
            "/dispatchables/norm/desc/Epsilon",
            json!("inf"),
            &["\"norm\"", "psilon"],
        ),
        (
            "/dispatchables/norm/desc/Epsilon",
            json!(-1),
            &["\"norm\"", "psilon"],
        ),
        (
            "/dispatchables/norm/desc/Epsilon",
            json!("small"),
            &["Epsilon", "small"],
        ),
        (
            "/dispatchables/norm/desc/FusedActivation",
            json!({ "Type": "ACTIVATION_SOFTMAX" }),
            &["FusedActivation", "activation", "SOFTMAX"],
        ),
        (
            "/dispatchables/norm/desc/FusedActivation",
            json!({ "Type": "ACTIVATION_ELU" }),
            &["FusedActivation", "Alpha"],
        ),
        (
            "/dispatchables/norm/desc/FusedActivation",
            json!({}),
            &["FusedActivation", "type"],
        ),
        (
            "/dispatchables/norm/bindings",
            json!({ "ScaleTensor": "Scale" }),
            &["ScaleTensor", "OWNED_BY_DML"],
        ),
        (
            "/dispatchables/norm/bindings",
            json!({ "ScaleTensor": "Nothing" }),
            &["ScaleTensor", "resource", "Nothing"],
        ),
        (
            "/dispatchables/norm/desc/ScaleTensor/Flags",
            json!("OWNED_BY_DML"),
            &["\"norm\"", "ScaleTensor", "nothing is bound"],
        ),
        (
            "/commands/0/dispatchable",
            json!("other"),
            &["command 0", "dispatchable", "other"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!(null),
            &["command 0", "InputTensor", "nothing is bound"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!("Missing"),
            &["command 0", "InputTensor", "Missing"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!(["In", "In"]),
            &["command 0", "InputTensor", "one resource"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!(7),
            &["command 0", "InputTensor", "7"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!("Scale"),
            &["command 0", "InputTensor", "16 bytes", "\"Scale\"", "8"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!({ "name": "In", "elementOffset": 4 }),
            &["elementOffset", "\"In\""],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!({ "name": "In", "elementOffset": u64::MAX }),
            &["elementOffset"],
        ),
        (
            "/commands/0/bindings/InputTensor",
            json!({ "name": "In", "elementOffset": -4 }),
            &["elementOffset", "-4"],
        ),
        (
            "/commands/0/bindings/BiasTensor",
            json!("Scale"),
            &["command 0", "BiasTensor", "does not have"],
        ),
        (
            "/commands/0/type",
            json!("explode"),
            &["command 0", "explode"],
        ),
        (
            "/commands/1/resource",
            json!("Missing"),
            &["command 1", "Missing"],
        ),
        (
            "/commands/1",
            json!({ "type": "writeFile", "resource": "Out", "targetPath": "../../../../../../../../out.dat" }),
            &["command 1", "targetPath", "outside"],
        ),
        (
            "/commands/1",
            json!({ "type": "writeFile", "resource": "Out", "targetPath": "/out.dat" }),
            &["command 1", "outside", "--write-under DIR"],
        ),
        (
            "/commands/1",
            json!({ "type": "writeFile", "resource": "Out", "targetPath": "out.npy", "dimensions": [5] }),
            &["command 1", "dimensions", "4"],
        ),
    ];
    for (pointer, value, parts) in cases {
        let error = refused(&[(pointer, value.clone())]);
        for part in *parts {
            assert!(
                error.contains(part),
                "{pointer} = {value}: {error:?} does not say {part:?}"
            );
        }
    }
}

#[test]
fn resources_are_limited_together() {
    let half = json!({ "valueCount": LIMIT / 8, "value": 0 });
    let model = with(&[
        ("/resources/In/initialValues", half.clone()),
        ("/resources/Out/initialValues", half),
    ]);
    let error = parse(&model).unwrap_err();
    assert!(matches!(error, ModelError::TooLarge { .. }), "{error}");
}

#[test]
fn models_made_by_hand_are_checked() {
    let change = |change: &dyn Fn(&mut Model)| {
        let mut model = parse(&layer_norm()).unwrap();
        change(&mut model);
        Session::new(&model).map(drop).unwrap_err().to_string()
    };
    let lost = change(&|model| drop(model.resources.remove("In")));
    assert!(lost.contains("unknown resource \"In\""), "{lost}");
    let lost = change(&|model| drop(model.resources.remove("Out")));
    assert!(lost.contains("unknown resource \"Out\""), "{lost}");
    let lost = change(&|model| model.dispatchables.clear());
    assert!(lost.contains("unknown dispatchable \"norm\""), "{lost}");
    let small = change(&|model| model.resources.get_mut("In").unwrap().size_in_bytes = 0);
    assert!(small.contains("\"In\""), "{small}");
    let large = change(&|model| {
        let resource = model.resources.get_mut("Out").unwrap();
        let InitialValues::Constant { count, .. } = &mut resource.initial_values else {
            panic!("{resource:?}")
        };
        *count = u64::MAX;
    });
    assert!(large.contains("sizeInBytes is 16"), "{large}");
    let unbound = change(&|model| {
        if let Command::Dispatch { bindings, .. } = &mut model.commands[0] {
            bindings.clear();
        }
    });
    assert!(unbound.contains("nothing is bound to"), "{unbound}");
}

#[test]
fn missing_outputs_of_a_device_are_an_error() {
    struct Forgetful;
    impl Executor for Forgetful {
        fn name(&self) -> &str {
            "forgetful"
        }

        fn run(
            &self,
            _: &Program,
            _: &std::collections::BTreeMap<Slot, Vec<u8>>,
            _: usize,
        ) -> Result<Run, ExecuteError> {
            Ok(Run::default())
        }
    }
    let model = parse(&layer_norm()).unwrap();
    let mut session = Session::new(&model).unwrap();
    let run = session.run(&Forgetful, &Options::default(), &mut |_| ());
    let error = run.unwrap_err().to_string();
    assert!(error.contains("OutputTensor"), "{error}");
}
