//! Descriptions and their problems: exact error messages and canonical forms.

use cubenorm_core::{
    BackwardDesc, DType, Dim, Epsilon, Layout, LerpDesc, NormDesc, NormProblem, Statistics,
    TensorDesc,
};

fn f32(shape: impl Into<Vec<usize>>) -> TensorDesc {
    TensorDesc::contiguous(shape, DType::F32)
}

fn desc(shape: impl Into<Vec<usize>>, axes: impl Into<Vec<usize>>) -> NormDesc {
    NormDesc::new(f32(shape), axes, Statistics::MeanVariance)
}

fn refusal(desc: NormDesc) -> String {
    desc.problem().unwrap_err().to_string()
}

fn dims(list: &[(usize, usize)]) -> Vec<Dim> {
    let dim = |&(size, stride)| Dim { size, stride };
    list.iter().map(dim).collect()
}

#[test]
fn mixed_dtypes_have_exact_messages() {
    assert_eq!(
        refusal(desc([2, 3], [1]).with_scale(TensorDesc::contiguous([3], DType::F64))),
        "scale has dtype f64: expected f32, as the input has dtype f32"
    );
    assert_eq!(
        refusal(desc([2, 3], [1]).with_residual(TensorDesc::contiguous([2, 3], DType::F64))),
        "residual has dtype f64: expected f16 or bf16 or f32, as the input has dtype f32"
    );
    assert_eq!(
        refusal(desc([2, 3], [1]).with_output(TensorDesc::contiguous([2, 3], DType::F64))),
        "output has dtype f64: expected f16 or bf16 or f32, as the input has dtype f32"
    );
    let half = TensorDesc::contiguous([2, 3], DType::F16);
    let half = NormDesc::new(half, [1], Statistics::MeanSquare);
    assert_eq!(
        refusal(
            half.clone()
                .with_scale(TensorDesc::contiguous([3], DType::BF16))
        ),
        "scale has dtype bf16: expected f16 or f32, as the input has dtype f16"
    );
    assert_eq!(
        refusal(
            half.clone()
                .with_scale(f32([3]))
                .with_bias(TensorDesc::contiguous([3], DType::F16))
        ),
        "bias has dtype f16: expected f32 like scale, as the input has dtype f16"
    );
    let wide_output = half.clone().with_output(f32([2, 3]));
    assert_eq!(
        refusal(wide_output.with_scale(TensorDesc::contiguous([3], DType::BF16))),
        "scale has dtype bf16: expected f16 or f32, as the input has dtype f16"
    );
    let given = |mean, variance| NormDesc {
        statistics: Statistics::Provided {
            mean: TensorDesc::contiguous([3], mean),
            variance: TensorDesc::contiguous([3], variance),
        },
        ..half.clone()
    };
    assert_eq!(
        refusal(given(DType::F16, DType::F32)),
        "variance has dtype f32: expected f16 like mean, as the input has dtype f16"
    );
    let scale = TensorDesc::contiguous([3], DType::F16);
    let wide = given(DType::F32, DType::F32).with_scale(scale).problem();
    let wide = wide.unwrap();
    assert_eq!(
        [wide.param_dtype, wide.provided_dtype],
        [DType::F16, DType::F32]
    );
}

#[test]
fn invalid_descriptions_have_exact_messages() {
    assert_eq!(
        refusal(desc([2, 3], [2])),
        "axis 2 is out of range: the input has rank 2, so axes go from 0 to 1"
    );
    assert_eq!(
        refusal(desc([2, 3], [1, 1])),
        "axis 1 is listed more than once in [1, 1]"
    );
    assert_eq!(
        refusal(desc([], [])),
        "input has rank 0: expected a rank from 1 to 8"
    );
    assert_eq!(
        refusal(desc([1; 9], [0])),
        "input has rank 9: expected a rank from 1 to 8"
    );
    assert_eq!(
        refusal(desc([2, 3], [1]).with_scale(f32([2]))),
        "scale with shape [2] does not broadcast to the input's shape [2, 3]: each of its \
         dimensions, aligned at the last, must be 1 or the input's"
    );
    assert_eq!(
        refusal(desc([2, 3], [1]).with_bias(f32([1, 2, 3]))),
        "bias with shape [1, 2, 3] does not broadcast to the input's shape [2, 3]: each of its \
         dimensions, aligned at the last, must be 1 or the input's"
    );
    for (epsilon, text) in [
        (-1e-5, "-0.00001"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        assert_eq!(
            refusal(desc([2, 3], [1]).with_epsilon(Epsilon::InsideSqrt(epsilon))),
            format!("epsilon is {text}: expected a finite number that is not negative")
        );
    }
    assert_eq!(
        refusal(desc([usize::MAX / 2, 4], [1])),
        format!(
            "input with shape [{}, 4] has more elements than this machine can address",
            usize::MAX / 2
        )
    );
    let strides = TensorDesc::new(Layout::strided([2, 3], [1]), DType::F32);
    assert_eq!(
        refusal(NormDesc::new(strides, [1], Statistics::Mean)),
        "input has 1 strides for 2 dimensions: expected one for each"
    );
    assert_eq!(
        refusal(desc([2, 3], [1]).with_output(f32([3, 2]))),
        "output has shape [3, 2]: expected the input's, [2, 3]"
    );
    let repeats = TensorDesc::new(Layout::strided([2, 3], [0, 1]), DType::F32);
    assert_eq!(
        refusal(desc([2, 3], [1]).with_output(repeats)),
        "output with shape [2, 3] and strides [0, 1] writes some elements twice"
    );
}

#[test]
fn adjacent_axes_of_one_kind_merge() {
    let problem = desc([2, 3, 4, 5], [2, 3]).problem().unwrap();
    assert_eq!((problem.rows, problem.cols), (6, 20));
    assert_eq!(problem.input.row, dims(&[(6, 20)]));
    assert_eq!(problem.input.col, dims(&[(20, 1)]));
}

#[test]
fn nchw_batch_norm_has_three_dimensions() {
    let channel = f32([3, 1, 1]);
    let desc = desc([8, 3, 4, 5], [0, 2, 3]).with_scale(channel);
    let NormProblem {
        rows,
        cols,
        input,
        scale,
        ..
    } = desc.problem().unwrap();
    assert_eq!((rows, cols), (3, 160));
    assert_eq!(input.row, dims(&[(3, 20)]));
    assert_eq!(input.col, dims(&[(8, 60), (20, 1)]));
    let scale = scale.unwrap();
    assert_eq!(scale.row, dims(&[(3, 1)]));
    assert_eq!(scale.col, []);
}

#[test]
fn tensors_are_coalesced_separately() {
    // Instance norm: the input's rows are one dimension, the scale repeats for each sample.
    let problem = desc([8, 3, 4, 5], [2, 3])
        .with_scale(f32([3, 1, 1]))
        .problem()
        .unwrap();
    assert_eq!(problem.input.row, dims(&[(24, 20)]));
    assert_eq!(problem.scale.unwrap().row, dims(&[(8, 0), (3, 1)]));
}

#[test]
fn dimensions_follow_memory_order() {
    // A transposed matrix, normalized over its contiguous dimension.
    let transposed = TensorDesc::new(Layout::strided([64, 32, 16], [1, 1024, 64]), DType::F32);
    let desc = NormDesc::new(transposed, [0, 2], Statistics::MeanVariance);
    let problem = desc.problem().unwrap();
    assert_eq!((problem.rows, problem.cols), (32, 1024));
    assert_eq!(problem.input.col, dims(&[(1024, 1)]));
    assert_eq!(problem.output.col, dims(&[(1024, 1)]));
}

#[test]
fn provided_statistics_use_evenly_strided_columns() {
    let channel = f32([3, 1, 1]);
    let desc = NormDesc::new(
        f32([8, 3, 4, 5]),
        [],
        Statistics::Provided {
            mean: channel.clone(),
            variance: channel,
        },
    );
    let problem = desc.problem().unwrap();
    assert_eq!((problem.rows, problem.cols), (24, 20));
}

#[test]
fn empty_tensor_is_empty_problem() {
    assert!(desc([0, 4], [1]).problem().unwrap().is_empty());
    assert!(desc([4, 0], [1]).problem().unwrap().is_empty());
}

#[test]
fn saved_statistics_need_stride_per_dimension() {
    let saved = |layout: Layout| BackwardDesc {
        saved: Some(TensorDesc::new(layout, DType::F32)),
        ..BackwardDesc::new(desc([5, 6], [1]))
    };
    let problem = |desc: BackwardDesc| desc.input_problem(desc.param_sums());
    let error = problem(saved(Layout::strided([5, 2], [1]))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "saved statistics has 1 strides for 2 dimensions: expected one for each"
    );
    // The same pair repeated along each row.
    let along = problem(saved(Layout::contiguous([5, 6, 2]))).unwrap();
    let saved = along.saved.unwrap();
    assert_eq!((saved.row, saved.col), (dims(&[(5, 12)]), Vec::new()));
}

#[test]
fn blend_uses_widest_dtype() {
    let of = |dtype: DType| TensorDesc::contiguous([3], dtype);
    let lerp = |input, output| LerpDesc::copy(of(input), of(output)).accumulation();
    assert_eq!(lerp(DType::F16, DType::F16), DType::F32);
    assert_eq!(lerp(DType::F32, DType::F64), DType::F64);
    let moved = LerpDesc {
        previous: Some(of(DType::F64)),
        ..LerpDesc::copy(of(DType::F32), of(DType::F32))
    };
    assert_eq!(moved.accumulation(), DType::F64);
}

#[test]
fn overlapping_rows_have_no_padding() {
    let given = |strides: [usize; 2]| {
        let rows = f32([4, 1]);
        let statistics = Statistics::Provided {
            mean: rows.clone(),
            variance: rows,
        };
        let input = TensorDesc::new(Layout::strided([4, 7], strides), DType::F32);
        NormDesc::new(input, [], statistics)
    };
    assert_eq!(given([4, 1]).with_padding(), None);
    let padded = given([8, 1]).with_padding().unwrap();
    assert_eq!(padded.input, f32([4, 8]));
}
