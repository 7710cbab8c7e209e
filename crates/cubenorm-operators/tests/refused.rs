//! Refused operators, with their exact messages.

use std::collections::BTreeMap;

use cubenorm_core::{DType, Layout};
use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, DataType, MeanVarianceNormalization,
    MeanVarianceNormalization1, TensorDesc,
};
use cubenorm_operators::onnx::{self, AttributeValue, BatchNormalizationVersion, Operator};
use cubenorm_operators::{OperatorError, Program};

#[track_caller]
fn refused(result: Result<Program, OperatorError>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

mod directml {
    use super::*;

    fn packed(sizes: &[u32]) -> TensorDesc {
        TensorDesc::packed(DataType::Float32, sizes)
    }

    fn operator(input: TensorDesc) -> MeanVarianceNormalization1 {
        MeanVarianceNormalization1::new(input.clone(), input, [1])
    }

    #[test]
    fn invalid_tensors() {
        refused(
            operator(packed(&[])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has rank 0: expected 1 to 8",
        );
        refused(
            operator(packed(&[1; 9])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has rank 9: expected 1 to 8",
        );
        refused(
            operator(packed(&[2, 0])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has sizes [2, 0]: expected none of them to \
             be 0",
        );
        refused(
            operator(packed(&[2, 3]).with_strides(vec![1])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has 1 strides: expected 2, one for each size",
        );
        refused(
            operator(packed(&[65536, 65536])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has sizes [65536, 65536]: expected to reach \
             over at most 4294967295 elements",
        );
        refused(
            operator(packed(&[u32::MAX; 8])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has sizes [4294967295, 4294967295, \
             4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295]: expected to \
             reach over at most 4294967295 elements",
        );
        refused(
            operator(packed(&[u32::MAX; 3]).with_strides(vec![0; 3])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has sizes [4294967295, 4294967295, \
             4294967295]: expected to reach over at most 4294967295 elements",
        );
        let padded = packed(&[2, 3]).with_strides(vec![4, 1]);
        assert!(
            operator(padded.clone().with_total_tensor_size_in_bytes(28))
                .lower()
                .is_ok()
        );
        refused(
            operator(padded.with_total_tensor_size_in_bytes(27)).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: InputTensor has TotalTensorSizeInBytes 27: expected at \
             least 28",
        );
    }

    #[test]
    fn mismatched_tensors() {
        let of = || operator(packed(&[2, 3]));
        refused(
            of().with_scale_tensor(packed(&[2, 2])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: ScaleTensor has sizes [2, 2]: expected each to be 1 or \
             the InputTensor's, of [2, 3]",
        );
        refused(
            of().with_bias_tensor(packed(&[3])).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: BiasTensor has rank 1: expected 2, the InputTensor's",
        );
        refused(
            of().with_bias_tensor(TensorDesc::packed(DataType::Float16, [1, 3]))
                .lower(),
            "MEAN_VARIANCE_NORMALIZATION1: BiasTensor has data type FLOAT16: expected FLOAT32, the \
             InputTensor's",
        );
        refused(
            MeanVarianceNormalization1::new(packed(&[2, 3]), packed(&[3, 2]), [1]).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: OutputTensor has sizes [3, 2]: expected the \
             InputTensor's, [2, 3]",
        );
        let repeated = packed(&[2, 3]).with_strides(vec![0, 1]);
        refused(
            MeanVarianceNormalization1::new(packed(&[2, 3]), repeated, [1]).lower(),
            "MEAN_VARIANCE_NORMALIZATION1: OutputTensor has sizes [2, 3] and strides [0, 1]: \
             expected an output in which no two elements share an address",
        );
        let image = packed(&[2, 3, 4]);
        refused(
            MeanVarianceNormalization::new(image.clone(), image).lower(),
            "MEAN_VARIANCE_NORMALIZATION: InputTensor has rank 3: expected 4: batch, channel, \
             height, width",
        );
        let [tensor, one] = [packed(&[2, 3]), packed(&[1, 3])];
        let parameters = [one.clone(), one.clone(), packed(&[3, 1]), one.clone()];
        let [mean, variance, scale, bias] = parameters;
        refused(
            BatchNormalization::new(tensor.clone(), mean, variance, scale, bias, tensor.clone())
                .lower(),
            "BATCH_NORMALIZATION: ScaleTensor has sizes [3, 1]: expected each to be 1 or the \
             InputTensor's, of [2, 3]",
        );
        let training = BatchNormalizationTraining::new(
            tensor.clone(),
            one.clone(),
            one.clone(),
            tensor.clone(),
            one.clone(),
            one.clone(),
        );
        assert!(training.lower().is_ok());
        refused(
            BatchNormalizationTraining {
                bias_tensor: packed(&[1, 1]),
                ..training.clone()
            }
            .lower(),
            "BATCH_NORMALIZATION_TRAINING: BiasTensor has sizes [1, 1]: expected the ScaleTensor's, \
             [1, 3]",
        );
        refused(
            training.clone().with_fused_add_tensor(one.clone()).lower(),
            "BATCH_NORMALIZATION_TRAINING: FusedAddTensor has sizes [1, 3]: expected the \
             InputTensor's, [2, 3]",
        );
        refused(
            BatchNormalizationTraining {
                output_variance_tensor: one.with_strides(vec![0, 0]),
                ..training
            }
            .lower(),
            "BATCH_NORMALIZATION_TRAINING: OutputVarianceTensor has sizes [1, 3] and strides [0, 0]: \
             expected an output in which no two elements share an address",
        );
    }

    #[test]
    fn numbers_out_of_range() {
        let tensor = packed(&[2, 3]);
        let of = |axes: &[u32]| {
            MeanVarianceNormalization1::new(tensor.clone(), tensor.clone(), axes).lower()
        };
        refused(
            of(&[0, 2]),
            "MEAN_VARIANCE_NORMALIZATION1: Axes is [0, 2]: expected axes from 0 to 1",
        );
        refused(
            of(&[1, 1]),
            "MEAN_VARIANCE_NORMALIZATION1: Axes is [1, 1]: expected no axis more than once",
        );
        for (epsilon, came) in [(-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            refused(
                operator(tensor.clone()).with_epsilon(epsilon).lower(),
                &format!(
                    "MEAN_VARIANCE_NORMALIZATION1: Epsilon is {came}: expected a finite number \
                     that is not negative"
                ),
            );
        }
        assert!(operator(tensor.clone()).with_epsilon(0.0).lower().is_ok());
    }
}

mod onnx_nodes {
    use super::*;
    use cubenorm_core::TensorDesc;

    fn f32(shape: &[usize]) -> Option<TensorDesc> {
        Some(TensorDesc::contiguous(shape, DType::F32))
    }

    fn f16(shape: &[usize]) -> Option<TensorDesc> {
        Some(TensorDesc::contiguous(shape, DType::F16))
    }

    #[track_caller]
    fn node(
        domain: &str,
        op_type: &str,
        opset: i64,
        attributes: &[(&str, AttributeValue)],
        expected: &str,
    ) {
        let attributes: BTreeMap<String, AttributeValue> = attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let refusal = Operator::from_node(domain, op_type, opset, &attributes).unwrap_err();
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn invalid_nodes() {
        use AttributeValue::{Float, Floats, Int, Other, String};
        node(
            "",
            "Softmax",
            17,
            &[],
            "unknown operator Softmax in domain \"\"",
        );
        node(
            "com.microsoft",
            "LayerNormalization",
            17,
            &[],
            "unknown operator LayerNormalization in domain \"com.microsoft\"",
        );
        node(
            "",
            "SkipLayerNormalization",
            17,
            &[],
            "unknown operator SkipLayerNormalization in domain \"\"",
        );
        for (op_type, since) in [
            ("BatchNormalization", 7),
            ("GroupNormalization", 18),
            ("InstanceNormalization", 6),
            ("LayerNormalization", 17),
            ("LpNormalization", 1),
            ("MeanVarianceNormalization", 9),
            ("RMSNormalization", 23),
        ] {
            let opset = since - 1;
            node(
                "",
                op_type,
                opset,
                &[],
                &format!("{op_type}: opset {opset} is in force: expected {since} or later"),
            );
        }
        node(
            "",
            "LayerNormalization",
            17,
            &[("axes", Int(1))],
            "LayerNormalization: unknown attribute axes: expected one of axis, epsilon, stash_type",
        );
        node(
            "",
            "BatchNormalization",
            9,
            &[("spatial", Int(1))],
            "BatchNormalization: unknown attribute spatial: expected one of epsilon, momentum",
        );
        node(
            "",
            "GroupNormalization",
            20,
            &[("num_groups", Int(1)), ("stash_type", Int(1))],
            "GroupNormalization: unknown attribute stash_type: expected one of num_groups, epsilon",
        );
        node(
            "",
            "GroupNormalization",
            21,
            &[],
            "GroupNormalization: attribute num_groups is required, but not given",
        );
        node(
            "",
            "LayerNormalization",
            17,
            &[("axis", Float(1.0))],
            "LayerNormalization: axis is a FLOAT: expected an INT",
        );
        node(
            "",
            "InstanceNormalization",
            6,
            &[("epsilon", String(b"1e-5".to_vec()))],
            "InstanceNormalization: epsilon is a STRING: expected a FLOAT",
        );
        node(
            "",
            "MeanVarianceNormalization",
            13,
            &[("axes", Floats(vec![1.0]))],
            "MeanVarianceNormalization: axes is FLOATS: expected INTS",
        );
        node(
            "",
            "LpNormalization",
            22,
            &[("p", Other)],
            "LpNormalization: p is of another type: expected an INT",
        );
        node(
            "",
            "BatchNormalization",
            14,
            &[("training_mode", Int(2))],
            "BatchNormalization: training_mode is 2: expected 0 or 1",
        );
    }

    #[test]
    fn missing_or_extra_inputs_and_outputs() {
        let layer = onnx::LayerNormalization::default();
        refused(
            layer.lower(&[f32(&[2, 3])], &[true]),
            "LayerNormalization: Scale is required, but not given",
        );
        refused(
            layer.lower(&[], &[true]),
            "LayerNormalization: X is required, but not given",
        );
        refused(
            layer.lower(&[f32(&[2, 3]), f32(&[3])], &[false, true]),
            "LayerNormalization: Y is not wanted: expected it always",
        );
        let four = [f32(&[2, 3]), f32(&[3]), f32(&[3]), f32(&[3])];
        refused(
            layer.lower(&four, &[true]),
            "LayerNormalization: 4 inputs are given: expected at most 3",
        );
        let trailing = [f32(&[2, 3]), f32(&[3]), None, None];
        assert!(layer.lower(&trailing, &[true, false, false, false]).is_ok());
        refused(
            layer.lower(&trailing, &[true, false, false, true]),
            "LayerNormalization: 4 outputs are given: expected at most 3",
        );
        let batch = onnx::BatchNormalization::new(BatchNormalizationVersion::V15);
        let inputs = [f32(&[2, 3]), f32(&[3]), f32(&[3]), f32(&[3]), f32(&[3])];
        refused(
            batch.lower(&inputs, &[true, false, true]),
            "BatchNormalization: running_var cannot be written: training_mode is 0",
        );
        let skip = onnx::SkipSimplifiedLayerNormalization::default();
        refused(
            skip.lower(&[f32(&[2, 3]), f32(&[2, 3]), f32(&[3])], &[true, true]),
            "SkipSimplifiedLayerNormalization: mean cannot be written: the operator takes none",
        );
        refused(
            layer.lower(&[f32(&[2, 0]), f32(&[1])], &[true, true]),
            "LayerNormalization: Mean cannot be written: it would be of no elements",
        );
    }

    #[test]
    fn mismatched_tensors() {
        let layer = onnx::LayerNormalization::default();
        refused(
            layer.lower(&[f32(&[]), f32(&[1])], &[true]),
            "LayerNormalization: X has rank 0: expected 1 to 8",
        );
        refused(
            layer.lower(&[f32(&[1; 9]), f32(&[1])], &[true]),
            "LayerNormalization: X has rank 9: expected 1 to 8",
        );
        refused(
            layer.lower(&[f32(&[2, 3]), f32(&[2])], &[true]),
            "LayerNormalization: Scale has sizes [2]: expected each, aligned at the last, to be 1 \
             or that of X, which has sizes [2, 3]",
        );
        refused(
            layer.lower(&[f32(&[2, 3]), f32(&[1, 2, 3])], &[true]),
            "LayerNormalization: Scale has sizes [1, 2, 3]: expected each, aligned at the last, to \
             be 1 or that of X, which has sizes [2, 3]",
        );
        refused(
            layer.lower(&[f32(&[2, 3]), f16(&[3])], &[true]),
            "LayerNormalization: Scale has data type f16: expected f32, that of X",
        );
        let strided = TensorDesc::new(Layout::strided([2, 3], [1]), F32);
        refused(
            layer.lower(&[Some(strided), f32(&[3])], &[true]),
            "X has 1 strides for 2 dimensions: expected one for each",
        );
        refused(
            layer.lower(&[f32(&[usize::MAX, 3]), f32(&[3])], &[true]),
            &format!(
                "X with shape [{}, 3] has more elements than this machine can address",
                usize::MAX
            ),
        );
        let instance = onnx::InstanceNormalization::default();
        refused(
            instance.lower(&[f32(&[3]), f32(&[3]), f32(&[3])], &[true]),
            "InstanceNormalization: input has rank 1: expected 2 to 8: instance, channel and any \
             others",
        );
        refused(
            instance.lower(&[f32(&[2, 3, 4]), f32(&[3]), f32(&[4])], &[true]),
            "InstanceNormalization: B has sizes [4]: expected [3]",
        );
        let group = onnx::GroupNormalization {
            version: onnx::GroupNormalizationVersion::V18,
            ..onnx::GroupNormalization::new(2)
        };
        refused(
            group.lower(&[f32(&[1, 4, 2]), f32(&[4]), f32(&[4])], &[true]),
            "GroupNormalization: scale has sizes [4]: expected [2]",
        );
        let uneven = Layout::strided([1, 4, 1, 1, 1, 1, 2, 2], [16, 4, 1, 1, 1, 1, 1, 2]);
        let uneven = Some(TensorDesc::new(uneven, F32));
        refused(
            onnx::GroupNormalization::new(2).lower(&[uneven, f32(&[4]), f32(&[4])], &[true]),
            "GroupNormalization: X has strides [16, 4, 1, 1, 1, 1, 1, 2]: expected the last two of \
             8 dimensions to follow one another",
        );
        let batch = |version| onnx::BatchNormalization::new(version);
        let [v9, v14] = [
            BatchNormalizationVersion::V9,
            BatchNormalizationVersion::V14,
        ]
        .map(batch);
        let of = |dtypes: [DType; 4]| {
            let mut inputs = vec![f32(&[2, 3])];
            inputs.extend(dtypes.map(|dtype| Some(TensorDesc::contiguous([3], dtype))));
            inputs
        };
        use DType::{F16, F32};
        refused(
            v9.lower(&of([F32, F32, F16, F16]), &[true]),
            "BatchNormalization: mean has data type f16: expected f32, that of X",
        );
        refused(
            v14.lower(&of([F16, F16, F32, F32]), &[true]),
            "BatchNormalization: scale has data type f16: expected f32, that of X",
        );
        refused(
            v14.lower(&of([F32, F32, F32, F16]), &[true]),
            "BatchNormalization: input_var has data type f16: expected f32, that of input_mean",
        );
        let skip = onnx::SkipLayerNormalization::default();
        refused(
            skip.lower(&[f32(&[3]), f32(&[3]), f32(&[3])], &[true]),
            "SkipLayerNormalization: input has rank 1: expected 2 or 3",
        );
        refused(
            skip.lower(&[f32(&[2, 4, 3]), f32(&[2, 1, 3]), f32(&[3])], &[true]),
            "SkipLayerNormalization: skip has sizes [2, 1, 3]: expected those of input, [2, 4, 3], \
             with a batch of 1 or none where it is repeated",
        );
    }

    #[test]
    fn attributes_out_of_range() {
        let x = || f32(&[2, 4]);
        for axis in [2, -3, i64::MIN, i64::MAX] {
            let lp = onnx::LpNormalization { axis, p: 2 };
            refused(
                lp.lower(&[x()], &[true]),
                &format!("LpNormalization: axis is {axis}: expected -2 to 1"),
            );
        }
        refused(
            onnx::LpNormalization { axis: 0, p: 3 }.lower(&[x()], &[true]),
            "LpNormalization: p is 3: expected 1 or 2",
        );
        refused(
            onnx::MeanVarianceNormalization::default().lower(&[x()], &[true]),
            "MeanVarianceNormalization: axes is 2: expected -2 to 1",
        );
        let twice = onnx::MeanVarianceNormalization { axes: vec![1, -1] };
        refused(
            twice.lower(&[x()], &[true]),
            "MeanVarianceNormalization: axes is [1, -1]: expected no axis more than once",
        );
        for groups in [0, 3, -2] {
            let group = onnx::GroupNormalization::new(groups);
            refused(
                group.lower(&[x(), f32(&[4]), f32(&[4])], &[true]),
                &format!(
                    "GroupNormalization: num_groups is {groups}: expected a divisor of the 4 \
                     channels"
                ),
            );
        }
        let layer = onnx::LayerNormalization {
            stash_type: 11,
            ..onnx::LayerNormalization::default()
        };
        refused(
            layer.lower(&[x(), f32(&[4])], &[true]),
            "LayerNormalization: stash_type is 11: expected 1 (f32) or 16 (bf16)",
        );
        let layer = onnx::LayerNormalization {
            epsilon: -1.0,
            ..onnx::LayerNormalization::default()
        };
        refused(
            layer.lower(&[x(), f32(&[4])], &[true]),
            "LayerNormalization: epsilon is -1: expected a finite number that is not negative",
        );
        let batch = onnx::BatchNormalization {
            momentum: 1.5,
            ..onnx::BatchNormalization::new(BatchNormalizationVersion::V15)
        };
        let c = || f32(&[4]);
        refused(
            batch.lower(&[x(), c(), c(), c(), c()], &[true]),
            "BatchNormalization: momentum is 1.5: expected a number from 0 to 1",
        );
    }
}
