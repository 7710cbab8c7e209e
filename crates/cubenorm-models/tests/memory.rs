//! Memory of the parsers: at most 4 times the file and 64 MiB, for any file.
//!
//! Each file is read by a process with a limited address space, which aborts if a parser exceeds
//! it. The process is this test's own program, running its test `child`.

#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Float64, npz};
use cubenorm_models::HostArray;
use cubenorm_models::dxdispatch::Model;
use cubenorm_models::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};
use cubenorm_models::onnx::{Node, read_tensor, write_tensor};
use cubenorm_models::verify::{Case, CaseResult, Kind, Options, run_case};
use prost::Message;
use rustix::process::{Resource, Rlimit, setrlimit};

const CHILD: &str = "CUBENORM_TEST_FILE";
const SLACK: u64 = 64 << 20;
/// Bytes of most hostile files. At this size, a factor of 20 exceeds the limit.
const SIZE: usize = 4 << 20;

/// The address space in use.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap() << 10
}

/// Bytes of a file, or of all files of a folder.
fn length(path: &Path) -> u64 {
    match path.is_dir() {
        true => path
            .read_dir()
            .unwrap()
            .map(|entry| length(&entry.unwrap().path()))
            .sum(),
        false => path.metadata().unwrap().len(),
    }
}

/// Reads a file by its extension; a folder by its model.
fn read(path: &Path) -> Result<(), String> {
    if path.is_dir() && path.join("grads.npz").exists() {
        return read_gradients(path);
    }
    let path = match path.is_dir() {
        true => ["model.onnx", "model.json"]
            .map(|name| path.join(name))
            .into_iter()
            .find(|p| p.exists())
            .unwrap(),
        false => path.to_owned(),
    };
    match path.extension().and_then(|e| e.to_str()).unwrap() {
        "onnx" => Node::read(&path)
            .map(drop)
            .map_err(|error| error.to_string()),
        "json" => Model::read(&path)
            .map(drop)
            .map_err(|error| error.to_string()),
        "greedy" => {
            let bytes = std::hint::black_box(vec![1; 4 * path.metadata().unwrap().len() as usize]);
            let more = std::hint::black_box(vec![1; SLACK as usize]);
            Err(format!("{} bytes", bytes.len() + more.len()))
        }
        "pb" => {
            let bytes = std::fs::read(&path).unwrap();
            read_tensor(&bytes)
                .map(drop)
                .map_err(|error| error.to_string())
        }
        other => panic!("{other} is no format"),
    }
}

/// Reads an archive by running its case.
fn read_gradients(folder: &Path) -> Result<(), String> {
    let case = Case {
        path: folder.to_owned(),
        kind: Kind::Onnx,
        must_be_refused: false,
        broken: None,
    };
    let options = Options {
        gradients: true,
        ..Options::default()
    };
    match run_case(&case, &Float64::new(), &options) {
        CaseResult::Failed(reason) => Err(reason),
        _ => Ok(()),
    }
}

/// Not a test by itself: the child of the other tests.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let path = PathBuf::from(path);
    let limit = address_space() + 4 * length(&path) + SLACK;
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    setrlimit(Resource::As, limit).unwrap();
    match read(&path) {
        Ok(()) => println!("\nRESULT taken"),
        Err(error) => println!("\nRESULT {}", error.chars().take(300).collect::<String>()),
    }
    std::process::exit(0);
}

#[test]
#[should_panic(expected = "signal: 6")]
fn limit_is_noticed() {
    Files::new().check("file.greedy", &[0; 1 << 20], "bytes");
}

/// Reads a file in a process with little memory. Returns the result.
fn result(path: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        // Threads reserve address space for heaps of their own.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    match result {
        Some(result) => result.to_owned(),
        None => panic!(
            "{path:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// Hostile files, each with a part of its result: the error, or "taken".
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn check(&self, name: &str, bytes: &[u8], expected: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        self.check_path(name, expected);
    }

    fn check_path(&self, name: &str, expected: &str) {
        let result = result(&self.folder.path().join(name));
        assert!(
            result.contains(expected),
            "{name}: {result:?} does not say {expected:?}"
        );
    }
}

fn layer_norm(scale: TensorProto) -> ModelProto {
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: None,
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            node: vec![NodeProto {
                input: vec!["X".to_owned(), "W".to_owned()],
                output: vec!["Y".to_owned()],
                op_type: Some("LayerNormalization".to_owned()),
                ..NodeProto::default()
            }],
            initializer: vec![scale],
            input: vec![value("X")],
            output: vec![value("Y")],
            ..GraphProto::default()
        }),
    }
}

fn scale() -> TensorProto {
    let array = HostArray::from_f64(cubenorm_core::DType::F32, [1], &[1.0]).unwrap();
    TensorProto::decode(write_tensor("W", &array).as_slice()).unwrap()
}

/// A model with one part changed.
fn changed(change: impl FnOnce(&mut ModelProto, &mut GraphProto)) -> Vec<u8> {
    let mut model = layer_norm(scale());
    let mut graph = model.graph.take().unwrap();
    change(&mut model, &mut graph);
    model.graph = Some(graph);
    model.encode_to_vec()
}

#[test]
fn onnx_parts_of_a_graph() {
    let files = Files::new();
    let many = SIZE / 2;
    let check = |name: &str, expected, change: &dyn Fn(&mut ModelProto, &mut GraphProto)| {
        files.check(&format!("{name}.onnx"), &changed(change), expected);
    };
    check("nodes", "2097153 nodes", &|_, g| {
        g.node.extend(vec![NodeProto::default(); many]);
    });
    check("initializers", "taken", &|_, g| {
        g.initializer.extend(vec![TensorProto::default(); many]);
    });
    check("no node", "0 nodes", &|_, g| {
        g.node.clear();
        g.initializer = vec![TensorProto::default(); many];
    });
    check("inputs", "inputs of the graph", &|_, g| {
        g.input = vec![ValueInfoProto::default(); many];
    });
    check("outputs", "outputs of the graph", &|_, g| {
        g.output = vec![ValueInfoProto::default(); many];
    });
    check("imports", "taken", &|m, _| {
        m.opset_import
            .extend(vec![OperatorSetIdProto::default(); many]);
    });
    // Many graphs, which protobuf merges.
    let mut bytes = changed(|_, _| ());
    bytes.extend(b"\x3a\0".repeat(many));
    files.check("graphs.onnx", &bytes, "taken");
}

#[test]
fn onnx_parts_of_a_node() {
    let files = Files::new();
    let many = SIZE / 2;
    let check = |name: &str, expected, change: &dyn Fn(&mut NodeProto)| {
        let bytes = changed(|_, g| change(&mut g.node[0]));
        files.check(&format!("{name}.onnx"), &bytes, expected);
    };
    check("inputs", "inputs of the node", &|n| {
        n.input = vec![String::new(); many];
    });
    check("outputs", "outputs of the node", &|n| {
        n.output = vec![String::new(); many];
    });
    check("attributes", "attributes of the node", &|n| {
        n.attribute = vec![AttributeProto::default(); many];
    });
    check("ints", "numbers of an attribute", &|n| {
        n.attribute = vec![AttributeProto {
            ints: vec![0; many],
            ..AttributeProto::default()
        }];
    });
    check("floats", "numbers of an attribute", &|n| {
        n.attribute = vec![AttributeProto {
            floats: vec![0.0; many / 2],
            ..AttributeProto::default()
        }];
    });
    check("operator", "a text of 4194304 bytes", &|n| {
        n.op_type = Some("\u{1}".repeat(SIZE));
    });
    check("name", "a text of 4194304 bytes", &|n| {
        n.input[1] = "\u{1}".repeat(SIZE);
    });
}

#[test]
fn onnx_parts_of_a_tensor() {
    let files = Files::new();
    let check = |name: &str, expected, tensor: TensorProto| {
        files.check(&format!("{name}.pb"), &tensor.encode_to_vec(), expected);
        let model = layer_norm(tensor).encode_to_vec();
        files.check(&format!("{name}.onnx"), &model, expected);
    };
    let tensor = |data_type, dims: &[i64]| TensorProto {
        name: Some("W".to_owned()),
        data_type: Some(data_type),
        dims: dims.to_vec(),
        ..TensorProto::default()
    };
    check("dims", "rank 2097152", tensor(1, &vec![1; SIZE / 2]));
    let count = 16 << 20;
    let zeros = || vec![0; count];
    let dims = [count as i64];
    let longs = TensorProto {
        int64_data: vec![0; count],
        ..tensor(7, &dims)
    };
    check("longs", "at most", longs);
    let wholes = TensorProto {
        int32_data: zeros(),
        ..tensor(6, &dims)
    };
    check("wholes", "at most", wholes);
    let halves = TensorProto {
        int32_data: zeros(),
        ..tensor(10, &dims)
    };
    check("halves", "taken", halves);
    let singles = TensorProto {
        raw_data: Some(vec![0; 4 * count]),
        ..tensor(1, &dims)
    };
    check("singles", "taken", singles);
    let other = TensorProto {
        int32_data: zeros(),
        ..tensor(1, &dims)
    };
    check("other", "int32_data", other);
    let entries = vec![StringStringEntryProto::default(); SIZE / 2];
    let external = TensorProto {
        external_data: entries,
        data_location: Some(1),
        ..tensor(1, &[1])
    };
    let bytes = layer_norm(external).encode_to_vec();
    files.check("external.onnx", &bytes, "location");
    let dims = TypeProto {
        tensor_type: Some(TensorTypeProto {
            elem_type: Some(1),
            shape: Some(TensorShapeProto {
                dim: vec![DimensionProto::default(); SIZE / 2],
            }),
        }),
    };
    let bytes = changed(|_, g| g.input[0].r#type = Some(dims.clone()));
    files.check("declared.onnx", &bytes, "rank 2097152");
}

#[test]
fn onnx_external_data() {
    let files = Files::new();
    let folder = files.folder.path().join("shared");
    std::fs::create_dir(&folder).unwrap();
    let count = 4 << 20;
    std::fs::write(folder.join("data"), vec![0; 4 * count]).unwrap();
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    // The node reads the same part of a file under many names.
    let model = changed(|_, g| {
        let names: Vec<String> = (0..40).map(|index| index.to_string()).collect();
        g.node[0].input.extend(names.iter().cloned());
        g.initializer
            .extend(names.into_iter().map(|name| TensorProto {
                name: Some(name),
                data_type: Some(1),
                dims: vec![count as i64],
                external_data: vec![entry("location", "data".to_owned())],
                data_location: Some(1),
                ..TensorProto::default()
            }));
    });
    std::fs::write(folder.join("model.onnx"), model).unwrap();
    files.check_path("shared", "at most");
}

/// A model with values for its one resource.
fn resource(values: &str) -> String {
    format!(r#"{{ "resources": {{ "r": {values} }}, "dispatchables": {{}}, "commands": [] }}"#)
}

#[test]
fn dxdispatch_texts() {
    let files = Files::new();
    let check = |name: &str, text: String, expected| {
        files.check(&format!("{name}.json"), text.as_bytes(), expected);
    };
    let items = |item: &str| format!("[{}{item}]", format!("{item},").repeat(SIZE / item.len()));
    let list = |data_type: &str, list: String| {
        resource(&format!(
            r#"{{ "initialValuesDataType": "{data_type}", "initialValues": {list} }}"#
        ))
    };
    check("deep arrays", "[".repeat(SIZE), "recursion");
    check("deep objects", "{\"a\":".repeat(SIZE / 5), "recursion");
    let depth = SIZE / 18;
    let nested = format!(
        "{}0{}",
        "{\"initialValues\":".repeat(depth),
        "}".repeat(depth)
    );
    check("deep values", resource(&nested), "recursion");
    check("deep list", list("FLOAT32", "[".repeat(SIZE)), "JSON");
    let closed = format!("{}{}", "[".repeat(SIZE), "]".repeat(SIZE));
    check("closed list", list("FLOAT32", closed), "recursion");
    for item in [
        "0",
        "[]",
        "{}",
        "\"\"",
        "null",
        "{\"a\":{}}",
        "{\"a\":{\"b\":{\"c\":0}}}",
    ] {
        let name = format!("items {}", item.len());
        check(&name, items(item), "too many values");
        check(
            &name,
            resource(&format!(r#"{{ "unknown": {} }}"#, items(item))),
            "too many values",
        );
        let commands = format!(
            r#"{{ "resources": {{}}, "dispatchables": {{}}, "commands": {} }}"#,
            items(item)
        );
        check(&name, commands, "too many values");
    }
    for data_type in ["INT64", "FLOAT64", "FLOAT32", "UINT8"] {
        check(
            &format!("zeros of {data_type}"),
            list(data_type, items("0")),
            "taken",
        );
    }
    check(
        "objects in a list",
        list("FLOAT32", items("{}")),
        "an object",
    );
    let element = format!("[{{ \"x\": {} }}]", items("0"));
    check("large element", list("FLOAT32", element), "too many values");
    let typed = format!(
        r#"{{ "initialValues": {} }}"#,
        items(r#"{"type":"INT64","value":0}"#)
    );
    check("typed elements", resource(&typed), "taken");
    // The longest text, with the values that grow most.
    let rest = list("INT64", "[0]".to_owned()).len();
    let most = format!("[0{}]", ",0".repeat((Model::MAX_TEXT_BYTES - rest) / 2));
    check("longest", list("INT64", most), "taken");
    check(
        "too long",
        " ".repeat(Model::MAX_TEXT_BYTES + 1),
        "at most 16777216",
    );
    let names = (0..SIZE / 10)
        .map(|index| format!("\"{index:x}\":0,"))
        .collect::<String>();
    check(
        "names",
        format!("{{ \"resources\": {{ {names} }} }}"),
        "too many values",
    );
    check(
        "long name",
        resource(&format!("{{ \"{}\": 0 }}", "\u{7f}".repeat(SIZE))),
        "a text has",
    );
    let escapes = "\\u0001".repeat(SIZE / 6);
    check(
        "long escapes",
        resource(&format!("{{ \"a\": \"{escapes}\" }}")),
        "a text has",
    );
}

/// The maximum number of each part of a model.
#[test]
fn dxdispatch_parts() {
    let files = Files::new();
    let check = |name: &str, text: String, expected| {
        files.check(&format!("{name}.json"), text.as_bytes(), expected);
    };
    let joined = |count: usize, part: &dyn Fn(usize) -> String| {
        (0..count).map(part).collect::<Vec<_>>().join(",")
    };
    let resources = joined(25_000, &|index| {
        format!(
            r#""{index}":{{"initialValuesDataType":"INT8","initialValues":{{"valueCount":1,"value":0}}}}"#
        )
    });
    let model = |resources: &str, dispatchables: &str, commands: &str| {
        format!(
            r#"{{"resources":{{{resources}}},"dispatchables":{{{dispatchables}}},"commands":[{commands}]}}"#
        )
    };
    check("resources", model(&resources, "", ""), "taken");
    let one = r#""r":{"initialValuesDataType":"FLOAT32","initialValues":[0]}"#;
    let tensor = r#"{"DataType":"FLOAT32","Sizes":[1,1]}"#;
    let norm = |index: usize| {
        format!(
            r#""{index}":{{"type":"MEAN_VARIANCE_NORMALIZATION1","desc":{{"InputTensor":{tensor},"OutputTensor":{tensor},"AxisCount":1,"Axes":[1],"NormalizeVariance":true,"Epsilon":1}}}}"#
        )
    };
    check(
        "dispatchables",
        model(one, &joined(6_500, &norm), ""),
        "taken",
    );
    let dispatch = r#"{"type":"dispatch","dispatchable":"0","bindings":{"InputTensor":"r","OutputTensor":"r"}}"#;
    let commands = joined(21_000, &|_| dispatch.to_owned());
    check("commands", model(one, &norm(0), &commands), "taken");
}

/// An .npy file with sizes and data.
fn npy(sizes: &str, is_fortran: bool, data: &[u8]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': ({sizes}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn dxdispatch_files() {
    let files = Files::new();
    let source = r#"{ "initialValues": { "sourcePath": "in.npy" } }"#;
    let check = |name: &str, file: &[u8], expected| {
        let folder = files.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("model.json"), resource(source)).unwrap();
        std::fs::write(folder.join("in.npy"), file).unwrap();
        files.check_path(name, expected);
    };
    let data = vec![0; 64 << 20];
    check("columns", &npy("4096, 4096", true, &data), "taken");
    check("rows", &npy("4096, 4096", false, &data), "taken");
    check(
        "rank",
        &npy(&"1,".repeat(30_000), true, &data[..4]),
        "rank 30000",
    );
    check(
        "sizes",
        &npy(&"4096,".repeat(4), true, &data),
        "takes 1125899906842624 bytes",
    );
    check("nested", &npy(&"(".repeat(30_000), true, &[]), "nests");
    let mut long = b"\x93NUMPY\x02\x00\xff\xff\xff\x7f".to_vec();
    long.resize(16 << 20, b' ');
    check("header", &long, "too long");

    // Resources that name the same file share it.
    let folder = files.folder.path().join("shared");
    std::fs::create_dir(&folder).unwrap();
    let resources: Vec<String> = (0..20)
        .map(|index| format!("\"{index}\": {source}"))
        .collect();
    let model = resource(source).replace(&format!("\"r\": {source}"), &resources.join(","));
    std::fs::write(folder.join("model.json"), model).unwrap();
    std::fs::write(
        folder.join("in.npy"),
        npy("4096, 2048", false, &data[..32 << 20]),
    )
    .unwrap();
    files.check_path("shared", "taken");

    // A file above the limit is not read.
    let folder = files.folder.path().join("large");
    std::fs::create_dir(&folder).unwrap();
    let large = |name: &str, bytes: u64| {
        File::create(folder.join(name))
            .unwrap()
            .set_len(bytes)
            .unwrap();
    };
    large("a", Model::MAX_BYTES + 1);
    let model = r#"{ "initialValuesDataType": "UINT8", "initialValues": { "sourcePath": "a" } }"#;
    std::fs::write(folder.join("model.json"), resource(model)).unwrap();
    files.check_path("large", "expected at most 4294967296");
}

/// A case with an archive of gradients.
fn gradients(files: &Files, name: &str, archive: &[u8], expected: &str) {
    let folder = files.folder.path().join(name);
    std::fs::create_dir_all(folder.join("test_data_set_0")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write("model.onnx", &layer_norm(scale()).encode_to_vec());
    let one = HostArray::from_f64(cubenorm_core::DType::F32, [1, 1], &[1.0]).unwrap();
    let zero = HostArray::from_f64(cubenorm_core::DType::F32, [1, 1], &[0.0]).unwrap();
    write("test_data_set_0/input_0.pb", &write_tensor("X", &one));
    write("test_data_set_0/output_0.pb", &write_tensor("Y", &zero));
    write("grads.npz", archive);
    files.check_path(name, expected);
}

#[test]
fn archives_of_gradients() {
    let files = Files::new();
    let zeros = npy("4194304,", false, &vec![0; 16 << 20]);
    let columns = npy("2048, 2048", true, &vec![0; 16 << 20]);
    let bomb = npy("67108864,", false, &vec![0; 256 << 20]);
    gradients(&files, "bomb", &npz(&[("dY", bomb)], true), "more than");
    let both = [("dY", zeros.clone()), ("dX", columns.clone())];
    gradients(&files, "both", &npz(&both, true), "more than");
    gradients(&files, "stored", &npz(&both, false), "dY has the shape");
    gradients(
        &files,
        "columns",
        &npz(&[("dX", columns)], true),
        "does not have dY",
    );
    let many = vec![("dY", Vec::new()); SIZE / 100];
    gradients(&files, "many", &npz(&many, false), "its header");
    let many = vec![("", Vec::new()); SIZE / 100];
    gradients(&files, "unknown", &npz(&many, false), "expected dY");
    // An archive that declares less than it has.
    let mut bytes = npz(&[("dY", zeros)], true);
    let size = (16u32 << 20).to_le_bytes();
    let mut changed = 0;
    for at in 0..bytes.len() - 4 {
        // The two records of its size, which includes the header.
        let value = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if value > u32::from_le_bytes(size) && value < (16 << 20) + 200 {
            bytes[at..at + 4].copy_from_slice(&[0; 4]);
            changed += 1;
        }
    }
    assert!(changed > 0);
    gradients(&files, "lying", &bytes, "dY");
}
