//! ONNX models: accepted forms, results and errors.

mod common;

use common::Float64;
use cubenorm_core::DType;
use cubenorm_models::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};
use cubenorm_models::onnx::{BindError, Node, NodeError, Prepared, TensorError, write_tensor};
use cubenorm_models::{FileAccess, HostArray};
use prost::Message;

fn value(name: &str, sizes: &[Option<i64>]) -> ValueInfoProto {
    let dim = |&dim_value: &Option<i64>| DimensionProto {
        dim_value,
        dim_param: None,
    };
    let shape = TensorShapeProto {
        dim: sizes.iter().map(dim).collect(),
    };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: Some(1),
                shape: Some(shape),
            }),
        }),
    }
}

/// LayerNormalization over the last axis of [N, 2], its scale an initializer, no bias; with Mean.
fn layer_norm() -> ModelProto {
    let axis = AttributeProto {
        name: Some("axis".to_owned()),
        i: Some(-1),
        r#type: Some(2),
        ..AttributeProto::default()
    };
    let epsilon = AttributeProto {
        name: Some("epsilon".to_owned()),
        f: Some(0.0),
        r#type: Some(1),
        ..AttributeProto::default()
    };
    let scale = array(&[2], &[1.0, 10.0]);
    let scale = TensorProto::decode(write_tensor("W", &scale).as_slice()).unwrap();
    let node = NodeProto {
        input: vec!["X".to_owned(), "W".to_owned(), String::new()],
        output: vec!["Y".to_owned(), "M".to_owned()],
        op_type: Some("LayerNormalization".to_owned()),
        attribute: vec![axis, epsilon],
        ..NodeProto::default()
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            node: vec![node],
            initializer: vec![scale],
            input: vec![value("X", &[None, Some(2)])],
            output: vec![value("M", &[None, Some(1)]), value("Y", &[None, Some(2)])],
            ..GraphProto::default()
        }),
    }
}

fn array(shape: &[usize], values: &[f64]) -> HostArray {
    HostArray::from_f64(DType::F32, shape, values).unwrap()
}

fn node(change: impl FnOnce(&mut ModelProto, &mut GraphProto)) -> Result<Node, NodeError> {
    let mut model = layer_norm();
    let mut graph = model.graph.take().unwrap();
    change(&mut model, &mut graph);
    model.graph = Some(graph);
    Node::from_bytes(&model.encode_to_vec())
}

#[test]
fn outputs_have_the_order_of_the_graph() {
    let node = node(|_, _| ()).unwrap();
    let prepared = Prepared::new(&node, &[array(&[2, 2], &[1.0, 3.0, -2.0, 2.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    let mean = ("M".to_owned(), array(&[2, 1], &[2.0, 0.0]));
    let result = ("Y".to_owned(), array(&[2, 2], &[-1.0, 10.0, -1.0, 10.0]));
    assert_eq!(outputs, [mean, result]);
}

#[test]
fn nodes_may_have_more_outputs_than_the_graph() {
    let node = node(|_, graph| drop(graph.output.remove(0))).unwrap();
    let prepared = Prepared::new(&node, &[array(&[1, 2], &[1.0, 3.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].1.to_f64().unwrap(), [-1.0, 10.0]);
}

#[test]
fn batch_norm_below_opset_14_trains_with_more_outputs() {
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    let output = |outputs: &[&str]| {
        let node = node(|model, graph| {
            model.opset_import[0].version = Some(9);
            graph.node[0] = NodeProto {
                input: names(&["X", "W", "B", "mean", "var"]),
                output: names(outputs),
                op_type: Some("BatchNormalization".to_owned()),
                ..NodeProto::default()
            };
            let channels = ["W", "B", "mean", "var"].map(|name| value(name, &[Some(1)]));
            graph.input = vec![value("X", &[None, Some(1)])];
            graph.input.extend(channels);
            graph.initializer = Vec::new();
            graph.output = vec![value("Y", &[None, Some(1)])];
        });
        let one = |number| array(&[1], &[number]);
        let inputs = [
            array(&[2, 1], &[1.0, 3.0]),
            one(1.0),
            one(0.0),
            one(0.0),
            one(1.0),
        ];
        let prepared = Prepared::new(&node.unwrap(), &inputs).unwrap();
        let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
        outputs[0].1.to_f64().unwrap()
    };
    // Normalized by the running mean of 0 and variance of 1, or by the batch's statistics.
    let close = |actual: Vec<f64>, expected: [f64; 2]| {
        let off = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
        assert!(off.fold(0.0, f64::max) < 1e-4, "{actual:?}");
    };
    close(output(&["Y"]), [1.0, 3.0]);
    close(output(&["Y", "m", "v", "sm", "sv"]), [-1.0, 1.0]);
}

#[test]
fn unnamed_initializers_are_not_absent_inputs() {
    let node = node(|_, graph| {
        let bias = TensorProto::decode(write_tensor("", &array(&[2], &[5.0, 5.0])).as_slice());
        graph.initializer.push(bias.unwrap());
    });
    let prepared = Prepared::new(&node.unwrap(), &[array(&[1, 2], &[1.0, 3.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    assert_eq!(outputs[1].1.to_f64().unwrap(), [-1.0, 10.0]);
}

#[test]
fn inputs_replace_initializers_of_their_name() {
    let node = node(|_, graph| graph.input.push(value("W", &[Some(2)]))).unwrap();
    let x = || array(&[1, 2], &[1.0, 3.0]);
    let run = |inputs: &[HostArray]| {
        let prepared = Prepared::new(&node, inputs).unwrap();
        let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
        outputs[1].1.to_f64().unwrap()
    };
    assert_eq!(run(&[x()]), [-1.0, 10.0]);
    assert_eq!(run(&[x(), array(&[2], &[5.0, 6.0])]), [-5.0, 6.0]);
}

#[test]
fn refuses_models_of_other_nodes() {
    let error = |change: fn(&mut ModelProto, &mut GraphProto)| node(change).unwrap_err();
    assert!(matches!(Node::from_bytes(b""), Err(NodeError::NoGraph)));
    assert!(matches!(
        Node::from_bytes(b"\xff\xff"),
        Err(NodeError::Decode(_))
    ));
    assert!(matches!(
        error(|_, g| g.node.clear()),
        NodeError::NodeCount(0)
    ));
    let twice = error(|_, g| g.node.push(g.node[0].clone()));
    assert!(matches!(twice, NodeError::NodeCount(2)));
    assert!(matches!(
        error(|m, _| m.opset_import.clear()),
        NodeError::NoOpset { .. }
    ));
    assert!(matches!(
        error(|_, g| g.output.clear()),
        NodeError::NoOutput
    ));
    let unknown = error(|_, g| g.node[0].op_type = Some("Gemm".to_owned()));
    assert!(matches!(unknown, NodeError::Operator(_)), "{unknown}");
    let old = error(|m, _| m.opset_import[0].version = Some(9));
    assert!(matches!(old, NodeError::Operator(_)), "{old}");
    let lost = error(|_, g| g.input.clear());
    assert!(matches!(lost, NodeError::UnknownInput { .. }), "{lost}");
    let unwritten = error(|_, g| g.output[0].name = Some("Z".to_owned()));
    assert!(
        matches!(unwritten, NodeError::UnknownOutput { .. }),
        "{unwritten}"
    );
    let repeated = error(|_, g| {
        let axis = g.node[0].attribute[0].clone();
        g.node[0].attribute.push(axis);
    });
    assert!(matches!(repeated, NodeError::Repeated { .. }), "{repeated}");
    let mismatched = error(|_, g| g.node[0].attribute[0].r#type = Some(1));
    assert!(
        matches!(mismatched, NodeError::AttributeType { .. }),
        "{mismatched}"
    );
    let negative = error(|_, g| g.input[0] = value("X", &[Some(-1)]));
    assert!(
        matches!(negative, NodeError::Declaration { .. }),
        "{negative}"
    );
    let untyped = error(|_, g| g.input[0].r#type = Some(TypeProto::default()));
    assert!(
        matches!(untyped, NodeError::Declaration { .. }),
        "{untyped}"
    );
    let external = error(|_, g| g.initializer[0].data_location = Some(1));
    assert!(matches!(external, NodeError::Initializer(_)), "{external}");
}

/// Runs a node on one row of 1 and 3, and returns the output at an index.
fn ran(node: &Node, index: usize) -> Vec<f64> {
    let prepared = Prepared::new(node, &[array(&[1, 2], &[1.0, 3.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    outputs[index].1.to_f64().unwrap()
}

#[test]
fn attributes_need_no_type() {
    let node = node(|_, graph| {
        for attribute in &mut graph.node[0].attribute {
            attribute.r#type = None;
        }
    });
    assert_eq!(ran(&node.unwrap(), 1), [-1.0, 10.0]);
}

#[test]
fn ir_versions_below_3_imply_opset_1() {
    let lp = |ir_version: Option<i64>, domain: Option<&str>| {
        node(|model, graph| {
            model.ir_version = ir_version;
            model.opset_import.clear();
            graph.node[0] = NodeProto {
                input: vec!["X".to_owned()],
                output: vec!["Y".to_owned()],
                op_type: Some("LpNormalization".to_owned()),
                domain: domain.map(str::to_owned),
                ..NodeProto::default()
            };
            graph.initializer.clear();
            graph.output.remove(0);
        })
    };
    let node = lp(Some(2), None).unwrap();
    let prepared = Prepared::new(&node, &[array(&[1, 2], &[3.0, 4.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    let off = outputs[0].1.to_f64().unwrap();
    assert!(
        (off[0] - 0.6).abs() < 1e-6 && (off[1] - 0.8).abs() < 1e-6,
        "{off:?}"
    );
    for (ir_version, domain) in [
        (Some(3), None),
        (None, None),
        (Some(2), Some("com.microsoft")),
    ] {
        let error = lp(ir_version, domain).unwrap_err();
        assert!(matches!(error, NodeError::NoOpset { .. }), "{error}");
    }
}

#[test]
fn unused_initializers_are_ignored() {
    let tensor = |name: &str, data_type: i32| TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(data_type),
        dims: vec![-1; 100],
        ..TensorProto::default()
    };
    let node = node(|_, graph| {
        // Strings, types of 4 bits, and types that ONNX does not have; a name twice.
        for data_type in [0, 8, 22, 99] {
            graph.initializer.push(tensor("other", data_type));
        }
        let mut external = tensor("away", 1);
        external.data_location = Some(1);
        graph.initializer.push(external);
        graph.initializer.push(tensor("listed", 99));
        // Before IR version 4, initializers are inputs of the graph as well.
        let mut listed = value("listed", &[Some(-1)]);
        let tensor = listed.r#type.as_mut().unwrap().tensor_type.as_mut();
        tensor.unwrap().elem_type = Some(99);
        graph.input.push(listed);
    });
    let node = node.unwrap();
    assert_eq!(node.initializers.keys().collect::<Vec<_>>(), ["W"]);
    assert_eq!(node.free_inputs().count(), 1);
    assert_eq!(ran(&node, 1), [-1.0, 10.0]);
}

#[test]
fn numbers_of_parts_are_limited() {
    let error = |change: fn(&mut ModelProto, &mut GraphProto)| node(change).unwrap_err();
    let inputs = error(|_, g| g.node[0].input = vec![String::new(); 65]);
    assert_eq!(
        inputs.to_string(),
        "inputs of the node are 65: expected at most 64"
    );
    let outputs = error(|_, g| g.node[0].output = vec![String::new(); 65]);
    let attributes = error(|_, g| g.node[0].attribute = vec![AttributeProto::default(); 65]);
    let numbers = error(|_, g| g.node[0].attribute[0].ints = vec![0; 65]);
    let declared = error(|_, g| g.input = vec![ValueInfoProto::default(); 1025]);
    for error in [outputs, attributes, numbers, declared] {
        assert!(matches!(error, NodeError::TooMany { .. }), "{error}");
    }
    let rank = error(|_, g| g.input[0] = value("X", &[Some(1); 65]));
    assert!(rank.to_string().contains("rank 65"), "{rank}");
    let name = error(|_, g| g.node[0].op_type = Some("x".repeat(1 << 17)));
    assert!(matches!(name, NodeError::Decode(_)), "{name}");
}

/// The model of `layer_norm` in a folder, with its scale in another file.
struct Outside {
    root: tempfile::TempDir,
    entries: Vec<(&'static str, String)>,
}

impl Outside {
    /// 4 bytes, then the scale of 1 and 10, then 4 bytes more in `model/data/weights`.
    fn new(entries: &[(&'static str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("model/data")).unwrap();
        let outside = Self {
            root,
            entries: entries
                .iter()
                .map(|&(key, value)| (key, value.to_owned()))
                .collect(),
        };
        outside.write("model/data/weights");
        outside
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str) {
        let values = [7.0f32, 1.0, 10.0, 9.0];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn model(&self) -> Vec<u8> {
        let mut model = layer_norm();
        let scale = &mut model.graph.as_mut().unwrap().initializer[0];
        scale.raw_data = None;
        scale.data_location = Some(1);
        let entry = |(key, value): &(&str, String)| StringStringEntryProto {
            key: Some((*key).to_owned()),
            value: Some(value.clone()),
        };
        scale.external_data = self.entries.iter().map(entry).collect();
        model.encode_to_vec()
    }

    fn read(&self, access: &FileAccess) -> Result<Vec<f64>, TensorError> {
        let path = self.path("model/model.onnx");
        std::fs::write(&path, self.model()).unwrap();
        match Node::read_with(&path, access) {
            Ok(node) => Ok(ran(&node, 1)),
            Err(NodeError::Initializer(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn external_data_is_read_below_the_folder() {
    let entries = [
        ("location", "data/weights"),
        ("offset", "4"),
        ("length", "8"),
    ];
    let outside = Outside::new(&entries);
    assert_eq!(outside.read(&FileAccess::new()).unwrap(), [-1.0, 10.0]);
    // Entries of other keys do not matter, and without a length the data goes to the end.
    let entries = [
        ("checksum", "?"),
        ("location", "./data/../data/weights"),
        ("offset", "8"),
    ];
    assert_eq!(
        Outside::new(&entries).read(&FileAccess::new()).unwrap(),
        [-10.0, 9.0]
    );
    let error = Node::from_bytes(&outside.model()).unwrap_err();
    let NodeError::Initializer(error) = error else {
        panic!("{error}")
    };
    assert!(matches!(error, TensorError::External { .. }), "{error}");
}

#[test]
fn external_data_has_the_bytes_of_its_dims() {
    for (offset, length) in [
        ("4", "4"),
        ("12", "8"),
        ("0", "12"),
        ("18446744073709551615", "8"),
    ] {
        let entries = [
            ("location", "data/weights"),
            ("offset", offset),
            ("length", length),
        ];
        let error = Outside::new(&entries).read(&FileAccess::new()).unwrap_err();
        assert!(
            matches!(error, TensorError::ExternalSize { expected: 8, .. }),
            "{error}"
        );
    }
    for (entries, part) in [
        (&[("offset", "4")][..], "location \"\""),
        (
            &[("location", "data/weights"), ("offset", "-4")],
            "offset \"-4\"",
        ),
        (
            &[("location", "data/weights"), ("length", "8 bytes")],
            "length \"8 bytes\"",
        ),
    ] {
        let error = Outside::new(entries).read(&FileAccess::new()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    for location in ["data", "data/none"] {
        let error = Outside::new(&[("location", location)]).read(&FileAccess::new());
        let error = error.unwrap_err();
        assert!(matches!(error, TensorError::ExternalFile { .. }), "{error}");
    }
}

#[test]
fn external_data_outside_needs_an_option() {
    let absolute = tempfile::tempdir().unwrap();
    let absolute = absolute.path().join("weights").display().to_string();
    for location in ["../weights", "/etc/hostname", &absolute, "data/../../none"] {
        let entries = [("location", location), ("offset", "4"), ("length", "8")];
        let outside = Outside::new(&entries);
        outside.write("weights");
        let error = outside.read(&FileAccess::new()).unwrap_err();
        assert!(
            matches!(error, TensorError::ExternalOutside { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("--read-anywhere"), "{error}");
        if location == "../weights" {
            let anywhere = FileAccess::new().read_anywhere(true);
            assert_eq!(outside.read(&anywhere).unwrap(), [-1.0, 10.0]);
        }
    }
}

#[cfg(unix)]
#[test]
fn external_data_follows_no_link_outside() {
    let outside = Outside::new(&[("location", "data/link"), ("offset", "4"), ("length", "8")]);
    outside.write("weights");
    let (target, link) = (outside.path("weights"), outside.path("model/data/link"));
    std::os::unix::fs::symlink(target, link).unwrap();
    let error = outside.read(&FileAccess::new()).unwrap_err();
    assert!(
        matches!(error, TensorError::ExternalOutside { .. }),
        "{error}"
    );
}

#[test]
fn refuses_mismatched_inputs() {
    let node = node(|_, _| ()).unwrap();
    let error = |inputs: &[HostArray]| Prepared::new(&node, inputs).unwrap_err();
    assert!(matches!(error(&[]), BindError::Count { .. }));
    let half = HostArray::from_f64(DType::F16, [1, 2], &[0.0; 2]).unwrap();
    assert!(matches!(error(&[half]), BindError::ElementType { .. }));
    assert!(matches!(
        error(&[array(&[1, 3], &[0.0; 3])]),
        BindError::Shape { .. }
    ));
    assert!(matches!(
        error(&[array(&[2], &[0.0; 2])]),
        BindError::Shape { .. }
    ));
}

#[test]
fn outputs_match_their_declarations() {
    let wrong = [
        value("M", &[None, Some(2)]),
        value("M", &[None]),
        ValueInfoProto {
            r#type: Some(TypeProto {
                tensor_type: Some(TensorTypeProto {
                    elem_type: Some(10),
                    shape: None,
                }),
            }),
            ..value("M", &[])
        },
    ];
    for output in wrong {
        let node = node(|_, graph| graph.output[0] = output).unwrap();
        let error = Prepared::new(&node, &[array(&[1, 2], &[0.0; 2])]).unwrap_err();
        let shape_or_type = matches!(
            error,
            BindError::OutputShape { .. } | BindError::OutputType { .. }
        );
        assert!(shape_or_type, "{error}");
    }
}

#[test]
fn outputs_of_empty_inputs_are_limited() {
    let open = |name| ValueInfoProto {
        name: Some(String::from(name)),
        r#type: None,
    };
    let node = node(|_, graph| {
        graph.input = vec![open("X"), open("W")];
        graph.output = vec![open("Y"), open("M")];
        graph.initializer.clear();
    });
    let node = node.unwrap();
    let empty = |shape: &[usize]| array(shape, &[]);
    let inputs = [empty(&[usize::MAX >> 3, 0]), empty(&[0])];
    assert!(Prepared::new(&node, &inputs).is_err());
}
