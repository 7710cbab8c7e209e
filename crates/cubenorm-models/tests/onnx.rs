//! What ONNX models are taken, what they do, and what is said about those that are not.

mod common;

use common::Float64;
use cubenorm_core::DType;
use cubenorm_models::HostArray;
use cubenorm_models::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use cubenorm_models::onnx::{BindError, Node, NodeError, Prepared, write_tensor};
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
fn outputs_come_in_the_order_of_the_graph() {
    let node = node(|_, _| ()).unwrap();
    let prepared = Prepared::new(&node, &[array(&[2, 2], &[1.0, 3.0, -2.0, 2.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    let mean = ("M".to_owned(), array(&[2, 1], &[2.0, 0.0]));
    let result = ("Y".to_owned(), array(&[2, 2], &[-1.0, 10.0, -1.0, 10.0]));
    assert_eq!(outputs, [mean, result]);
}

#[test]
fn a_node_may_have_more_outputs_than_the_graph() {
    let node = node(|_, graph| drop(graph.output.remove(0))).unwrap();
    let prepared = Prepared::new(&node, &[array(&[1, 2], &[1.0, 3.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].1.to_f64().unwrap(), [-1.0, 10.0]);
}

#[test]
fn a_batch_norm_before_version_14_trains_where_it_has_further_outputs() {
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
    // By the running mean of 0 and variance of 1, or by the batch's, which nobody asks for.
    let close = |actual: Vec<f64>, expected: [f64; 2]| {
        let off = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
        assert!(off.fold(0.0, f64::max) < 1e-4, "{actual:?}");
    };
    close(output(&["Y"]), [1.0, 3.0]);
    close(output(&["Y", "m", "v", "sm", "sv"]), [-1.0, 1.0]);
}

#[test]
fn an_initializer_without_a_name_is_no_input_without_one() {
    let node = node(|_, graph| {
        let bias = TensorProto::decode(write_tensor("", &array(&[2], &[5.0, 5.0])).as_slice());
        graph.initializer.push(bias.unwrap());
    });
    let prepared = Prepared::new(&node.unwrap(), &[array(&[1, 2], &[1.0, 3.0])]).unwrap();
    let (outputs, _) = prepared.run(&Float64::new(), 1).unwrap();
    assert_eq!(outputs[1].1.to_f64().unwrap(), [-1.0, 10.0]);
}

#[test]
fn an_input_replaces_the_initializer_of_its_name() {
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
fn models_that_are_not_of_one_normalization_are_refused() {
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

#[test]
fn inputs_that_do_not_fit_are_refused() {
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
fn outputs_are_what_the_graph_declares() {
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
fn outputs_of_an_empty_input_are_not_allocated_beyond_reason() {
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
