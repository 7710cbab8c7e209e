//! DirectML's gradient operators against their formulas, written out in plain loops.

mod support;

use cubenorm_operators::directml::{
    BatchNormalizationGrad, BatchNormalizationTrainingGrad, DataType, Operator, TensorDesc,
};
use support::Tensor;

const SIZES: [usize; 4] = [2, 3, 4, 5];
const CHANNELS: [u32; 4] = [1, 3, 1, 1];
const EPSILON: f32 = 0.25;

fn desc(sizes: &[u32]) -> TensorDesc {
    TensorDesc::packed(DataType::Float32, sizes)
}

/// Pseudo-random f32 numbers, one for each element.
fn numbers(count: usize, seed: usize, offset: f64) -> Vec<f64> {
    (0..count)
        .map(|i| offset + ((i * 37 + seed * 101) % 64) as f64 / 64.0)
        .collect()
}

/// Input, gradient, means, variances and scales.
fn data() -> [Vec<f64>; 5] {
    let elements = SIZES.iter().product();
    [
        numbers(elements, 1, -0.5),
        numbers(elements, 2, -0.5),
        numbers(3, 3, -0.5),
        numbers(3, 4, 0.5),
        numbers(3, 5, 0.5),
    ]
}

fn channel(element: usize) -> usize {
    element / 20 % 3
}

#[test]
fn provided_statistics_are_constants() {
    let [x, dy, mean, variance, scale] = data();
    let rstd = |c: usize| 1.0 / (variance[c] + f64::from(EPSILON)).sqrt();
    let (mut ds, mut db) = (vec![0.0; 3], vec![0.0; 3]);
    let mut dx = Vec::new();
    for (i, (x, dy)) in x.iter().zip(&dy).enumerate() {
        let c = channel(i);
        ds[c] += dy * (x - mean[c]) * rstd(c);
        db[c] += dy;
        dx.push(dy * scale[c] * rstd(c));
    }
    let operator =
        BatchNormalizationGrad::new(desc(&SIZES.map(|size| size as u32)), desc(&CHANNELS))
            .with_epsilon(EPSILON);
    check(&Operator::BatchNormalizationGrad(operator), [&dx, &ds, &db]);
}

#[test]
fn statistics_of_the_input_are_differentiated() {
    let [x, dy, mean, variance, scale] = data();
    let rstd = |c: usize| 1.0 / (variance[c] + f64::from(EPSILON)).sqrt();
    let (mut ds, mut db) = (vec![0.0; 3], vec![0.0; 3]);
    for (i, (x, dy)) in x.iter().zip(&dy).enumerate() {
        let c = channel(i);
        ds[c] += dy * (x - mean[c]) * rstd(c);
        db[c] += dy;
    }
    let count = 40.0;
    let dx: Vec<f64> = (x.iter().zip(&dy).enumerate())
        .map(|(i, (x, dy))| {
            let c = channel(i);
            let normalized = (x - mean[c]) * rstd(c);
            scale[c] * rstd(c) * (dy - db[c] / count - normalized * ds[c] / count)
        })
        .collect();
    let operator =
        BatchNormalizationTrainingGrad::new(desc(&SIZES.map(|size| size as u32)), desc(&CHANNELS))
            .with_epsilon(EPSILON);
    check(
        &Operator::BatchNormalizationTrainingGrad(operator),
        [&dx, &ds, &db],
    );
}

#[track_caller]
fn check(operator: &Operator, expected: [&[f64]; 3]) {
    let program = operator.lower().unwrap();
    let inputs: Vec<Tensor> = data()
        .into_iter()
        .map(|buffer| Tensor {
            layout: cubenorm_core::Layout::contiguous([buffer.len()]),
            buffer,
        })
        .collect();
    let inputs: Vec<(usize, &Tensor)> = inputs.iter().enumerate().collect();
    let run = support::run(&program, &inputs);
    for (position, expected) in expected.into_iter().enumerate() {
        support::assert_close(&run.output(position), expected, position);
    }
}

#[test]
fn gradients_have_the_sizes_of_their_tensors() {
    let mut operator =
        BatchNormalizationGrad::new(desc(&SIZES.map(|size| size as u32)), desc(&CHANNELS));
    operator.output_scale_gradient_tensor = desc(&[1, 1, 1, 1]);
    let message = operator.lower().unwrap_err().to_string();
    assert!(message.contains("OutputScaleGradientTensor"), "{message}");
    assert!(message.contains("[1, 3, 1, 1]"), "{message}");
}
