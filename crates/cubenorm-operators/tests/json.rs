//! DirectML's structs in JSON, by the specification's names.

use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, DataType, FusedActivation,
    MeanVarianceNormalization, MeanVarianceNormalization1, MeanVarianceNormalization2, Operator,
    TensorDesc,
};
use serde_json::{Value, from_value, json, to_value};

fn tensor(sizes: &[u32]) -> Value {
    json!({ "DataType": "FLOAT32", "Sizes": sizes })
}

fn packed(sizes: &[u32]) -> TensorDesc {
    TensorDesc::packed(DataType::Float32, sizes)
}

#[track_caller]
fn round_trip(json: Value, operator: Operator) {
    assert_eq!(from_value::<Operator>(json.clone()).unwrap(), operator);
    assert_eq!(to_value(&operator).unwrap(), json);
}

#[test]
fn operators_keep_the_specifications_names() {
    let [full, one] = [packed(&[2, 3, 4, 5]), packed(&[1, 3, 1, 1])];
    let [full_json, one_json] = [tensor(&[2, 3, 4, 5]), tensor(&[1, 3, 1, 1])];
    round_trip(
        json!({
            "Type": "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION",
            "Desc": {
                "InputTensor": full_json,
                "ScaleTensor": one_json,
                "BiasTensor": one_json,
                "OutputTensor": full_json,
                "CrossChannel": true,
                "NormalizeVariance": false,
                "Epsilon": 0.5,
                "FusedActivation": { "Type": "DML_OPERATOR_ACTIVATION_RELU" },
            },
        }),
        Operator::MeanVarianceNormalization(
            MeanVarianceNormalization::new(full.clone(), full.clone())
                .with_scale_tensor(one.clone())
                .with_bias_tensor(one.clone())
                .with_cross_channel(true)
                .with_normalize_variance(false)
                .with_epsilon(0.5)
                .with_fused_activation(FusedActivation::Relu),
        ),
    );
    round_trip(
        json!({
            "Type": "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION1",
            "Desc": {
                "InputTensor": full_json,
                "OutputTensor": full_json,
                "Axes": [2, 3],
                "NormalizeVariance": true,
                "Epsilon": 0.5,
            },
        }),
        Operator::MeanVarianceNormalization1(
            MeanVarianceNormalization1::new(full.clone(), full.clone(), [2, 3]).with_epsilon(0.5),
        ),
    );
    round_trip(
        json!({
            "Type": "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION2",
            "Desc": {
                "InputTensor": full_json,
                "ScaleTensor": one_json,
                "OutputTensor": full_json,
                "Axes": [1],
                "UseMean": false,
                "UseVariance": true,
                "Epsilon": 0.5,
            },
        }),
        Operator::MeanVarianceNormalization2(
            MeanVarianceNormalization2::new(full.clone(), full.clone(), [1])
                .with_scale_tensor(one.clone())
                .with_use_mean(false)
                .with_epsilon(0.5),
        ),
    );
    round_trip(
        json!({
            "Type": "DML_OPERATOR_BATCH_NORMALIZATION",
            "Desc": {
                "InputTensor": full_json,
                "MeanTensor": one_json,
                "VarianceTensor": one_json,
                "ScaleTensor": one_json,
                "BiasTensor": one_json,
                "OutputTensor": full_json,
                "Spatial": true,
                "Epsilon": 0.5,
                "FusedActivation": {
                    "Type": "DML_OPERATOR_ACTIVATION_SCALED_ELU",
                    "Alpha": 1.5,
                    "Gamma": 1.25,
                },
            },
        }),
        Operator::BatchNormalization(
            BatchNormalization::new(
                full.clone(),
                one.clone(),
                one.clone(),
                one.clone(),
                one.clone(),
                full.clone(),
            )
            .with_epsilon(0.5)
            .with_fused_activation(FusedActivation::ScaledElu {
                alpha: 1.5,
                gamma: 1.25,
            }),
        ),
    );
    round_trip(
        json!({
            "Type": "DML_OPERATOR_BATCH_NORMALIZATION_TRAINING",
            "Desc": {
                "InputTensor": full_json,
                "ScaleTensor": one_json,
                "BiasTensor": one_json,
                "FusedAddTensor": full_json,
                "OutputTensor": full_json,
                "OutputMeanTensor": one_json,
                "OutputVarianceTensor": one_json,
                "Epsilon": 0.5,
            },
        }),
        Operator::BatchNormalizationTraining(
            BatchNormalizationTraining::new(
                full.clone(),
                one.clone(),
                one.clone(),
                full.clone(),
                one.clone(),
                one,
            )
            .with_fused_add_tensor(full)
            .with_epsilon(0.5),
        ),
    );
}

#[test]
fn prefixes_are_optional_and_fields_may_be_null() {
    let operator: Operator = from_value(json!({
        "Type": "MEAN_VARIANCE_NORMALIZATION1",
        "Desc": {
            "InputTensor": {
                "DataType": "DML_TENSOR_DATA_TYPE_FLOAT16",
                "DimensionCount": 2,
                "Sizes": [2, 3],
                "Strides": [1, 2],
                "TotalTensorSizeInBytes": 12,
            },
            "ScaleTensor": null,
            "OutputTensor": { "DataType": "FLOAT16", "Sizes": [2, 3], "Strides": null },
            "AxisCount": 1,
            "Axes": [1],
            "NormalizeVariance": true,
            "Epsilon": 1e-5,
            "FusedActivation": { "Type": "ACTIVATION_LEAKY_RELU", "Alpha": 0.125 },
        },
    }))
    .unwrap();
    let output = TensorDesc::packed(DataType::Float16, [2, 3]);
    let input = output.clone().with_strides(vec![1, 2]);
    let input = input.with_total_tensor_size_in_bytes(12);
    let expected = MeanVarianceNormalization1::new(input, output, [1])
        .with_fused_activation(FusedActivation::LeakyRelu { alpha: 0.125 });
    assert_eq!(operator, Operator::MeanVarianceNormalization1(expected));
}

#[test]
fn required_fields_are_required() {
    let missing = |json: Value| from_value::<MeanVarianceNormalization1>(json).unwrap_err();
    let error = missing(json!({ "InputTensor": tensor(&[2, 3]), "OutputTensor": tensor(&[2, 3]) }));
    assert_eq!(error.to_string(), "missing field `Axes`");
    let relu = from_value::<FusedActivation>(json!({ "Type": "ACTIVATION_LEAKY_RELU" }));
    assert_eq!(relu.unwrap_err().to_string(), "missing field `Alpha`");
}

#[test]
fn every_activation_round_trips() {
    for (name, parameters) in [
        ("ELU", &["Alpha"] as &[_]),
        ("HARD_SIGMOID", &["Alpha", "Beta"]),
        ("IDENTITY", &[]),
        ("LEAKY_RELU", &["Alpha"]),
        ("LINEAR", &["Alpha", "Beta"]),
        ("PARAMETRIC_SOFTPLUS", &["Alpha", "Beta"]),
        ("RELU", &[]),
        ("SCALED_ELU", &["Alpha", "Gamma"]),
        ("SCALED_TANH", &["Alpha", "Beta"]),
        ("SIGMOID", &[]),
        ("SOFTPLUS", &["Steepness"]),
        ("SOFTSIGN", &[]),
        ("TANH", &[]),
        ("THRESHOLDED_RELU", &["Alpha"]),
        ("SHRINK", &["Bias", "Threshold"]),
        ("CELU", &["Alpha"]),
    ] {
        let mut json = json!({ "Type": format!("DML_OPERATOR_ACTIVATION_{name}") });
        for (number, parameter) in parameters.iter().enumerate() {
            json[parameter] = json!(0.5 + number as f64);
        }
        let activation: FusedActivation = from_value(json.clone()).unwrap();
        assert_eq!(to_value(activation).unwrap(), json);
        json["Type"] = json!(format!("ACTIVATION_{name}"));
        assert_eq!(from_value::<FusedActivation>(json).unwrap(), activation);
    }
}
