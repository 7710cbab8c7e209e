//! The host reference in `f64` that an output must agree with before it is timed.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

use anyhow::{Result, ensure};

use crate::problems::{ALPHA, DType, EPSILON, HostData, Op, Problem};

/// Largest difference allowed, relative to the larger of one and the expected value.
///
/// Wide enough for the chains of operations of the slower providers. Far too narrow for a kernel
/// that missed a row, a column or a parameter.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 5e-3,
        DType::F16 => 2e-2,
        DType::Bf16 => 5e-2,
    }
}

/// A provider's result, read back to the host.
#[derive(Default)]
pub struct Outcome {
    pub output: Vec<f32>,
    /// The sum, or the normalized key, if the provider returns it.
    pub second: Option<Vec<f32>>,
    /// Gradient of the input, if every element of `dy` is one. Passes with a backward have it.
    pub gradient: Option<Vec<f32>>,
}

/// Compares a provider's result with the reference.
pub(crate) fn check(problem: &Problem, data: &HostData, outcome: &Outcome) -> Result<()> {
    let tensors = [Some(&outcome.output), outcome.gradient.as_ref()];
    for tensor in tensors.into_iter().flatten() {
        ensure!(
            tensor.len() == data.input.len(),
            "wrong result: {} elements where the input has {}",
            tensor.len(),
            data.input.len(),
        );
    }
    let length = problem.row();
    let tolerance = tolerance(problem.dtype);
    let check_row = |row: usize| {
        let places: Vec<usize> = (0..length)
            .map(|column| problem.element(row, column))
            .collect();
        let expected = reference(problem, data, row);
        let tolerance = tolerance + expected.rounding;
        let output = &outcome.output;
        compare("output", &places, &expected.output, output, tolerance)?;
        match &outcome.gradient {
            Some(gradient) => compare("gradient", &places, &expected.gradient, gradient, tolerance),
            None => Ok(()),
        }
    };
    each_row(data.input.len() / length, check_row)?;
    match &outcome.second {
        Some(second) => check_second(problem, data, second, tolerance),
        None => Ok(()),
    }
}

/// Checks rows on all cores. Returns the error of the first wrong row.
fn each_row(rows: usize, check: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = rows.div_ceil(threads).max(1);
    let check = &check;
    thread::scope(|scope| {
        let shares = (0..rows).step_by(share).map(|first| {
            let mut rows = first..rows.min(first + share);
            scope.spawn(move || rows.try_for_each(check))
        });
        let shares: Vec<_> = shares.collect();
        let mut done = shares.into_iter().map(|share| share.join());
        done.try_for_each(|it| it.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Compares the second result with the reference.
fn check_second(problem: &Problem, data: &HostData, second: &[f32], tolerance: f64) -> Result<()> {
    ensure!(
        second.len() == data.second.len(),
        "wrong result: {} elements where the second tensor has {}",
        second.len(),
        data.second.len(),
    );
    let length = problem.row();
    each_row(data.second.len() / length, |row| {
        let values = &data.second[row * length..(row + 1) * length];
        let values: Vec<f64> = values.iter().map(|&x| x.into()).collect();
        let places: Vec<usize> = (row * length..(row + 1) * length).collect();
        let expected = match problem.op {
            Op::QkNorm => of_row(problem, data, row, &values, None).output,
            _ => {
                let sums = places.iter().zip(&values);
                sums.map(|(&place, value)| f64::from(data.input[place]) + value)
                    .collect()
            }
        };
        compare("second result", &places, &expected, second, tolerance)
    })
}

fn compare(
    what: &str,
    places: &[usize],
    expected: &[f64],
    actual: &[f32],
    tolerance: f64,
) -> Result<()> {
    for (&place, &expected) in places.iter().zip(expected) {
        let actual = actual[place];
        let difference = (f64::from(actual) - expected).abs();
        // NaN compares false, so it fails here.
        ensure!(
            difference <= tolerance * expected.abs().max(1.0),
            "wrong result: element {place} of the {what} is {actual}, expected {expected}",
        );
    }
    Ok(())
}

/// The expected result of one row.
struct Row {
    output: Vec<f64>,
    gradient: Vec<f64>,
    /// Half of a step of the codes, if the result is rounded to codes.
    rounding: f64,
}

fn reference(problem: &Problem, data: &HostData, row: usize) -> Row {
    let places = (0..problem.row()).map(|column| problem.element(row, column));
    let second: Vec<f64> = match problem.op {
        Op::AddRmsNorm | Op::GatedRmsNorm => {
            places.clone().map(|it| data.second[it].into()).collect()
        }
        _ => Vec::new(),
    };
    let mut x: Vec<f64> = places.map(|it| data.input[it].into()).collect();
    let gate = match problem.op {
        Op::GatedRmsNorm => Some(second.as_slice()),
        _ => {
            x.iter_mut().zip(&second).for_each(|(x, r)| *x += r);
            None
        }
    };
    of_row(problem, data, row, &x, gate)
}

/// `x * sigmoid(x)` and its derivative.
fn silu(x: f64) -> (f64, f64) {
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid)))
}

/// The result for these values of a row, multiplied by the SiLU of a gate.
fn of_row(problem: &Problem, data: &HostData, row: usize, x: &[f64], gate: Option<&[f64]>) -> Row {
    let length = problem.row();
    let biased = problem.op.has_bias();
    let parameter = |column| problem.parameter(row, column);
    let gamma: Vec<f64> = (0..x.len())
        .map(|c| problem.op.offset() + f64::from(data.gamma[parameter(c)]))
        .collect();
    let beta = |column: usize| match biased {
        true => data.beta[parameter(column)].into(),
        false => 0.0,
    };
    if problem.op == Op::DynamicTanh {
        let tanh: Vec<f64> = x.iter().map(|x| (ALPHA * x).tanh()).collect();
        let affine = |column: usize| tanh[column] * gamma[column] + beta(column);
        let slope = |column: usize| gamma[column] * ALPHA * (1.0 - tanh[column].powi(2));
        return Row {
            output: (0..length).map(affine).collect(),
            gradient: (0..length).map(slope).collect(),
            rounding: 0.0,
        };
    }

    let centered = problem.op.norm() != Op::RmsNorm;
    let given = problem.is_inference();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / length as f64;
    let center = match centered && !given {
        true => mean(&mut x.iter().copied()),
        false => 0.0,
    };
    let square = match given {
        true => 1.0,
        false => mean(&mut x.iter().map(|x| (x - center).powi(2))),
    };
    let rstd = 1.0 / (square + EPSILON).sqrt();
    let normalized: Vec<f64> = x.iter().map(|x| (x - center) * rstd).collect();

    // The value, and the derivative of the result by it.
    let result = |column: usize| {
        let affine = normalized[column] * gamma[column] + beta(column);
        match (problem.op, gate) {
            (Op::SiluGroupNorm, _) => silu(affine),
            (_, Some(gate)) => {
                let (factor, _) = silu(gate[column]);
                (affine * factor, factor)
            }
            _ => (affine, 1.0),
        }
    };
    let (output, slopes): (Vec<f64>, Vec<f64>) = (0..length).map(result).unzip();
    let above: Vec<f64> = slopes.iter().zip(&gamma).map(|(s, g)| s * g).collect();
    // The derivative through the statistics removes two parts of the incoming gradient: the part along the normalized
    // row and, if a mean was subtracted, its mean.
    let along = mean(&mut normalized.iter().zip(&above).map(|(x, g)| x * g));
    let level = match centered {
        true => mean(&mut above.iter().copied()),
        false => 0.0,
    };
    let gradient = normalized
        .iter()
        .zip(&above)
        .map(|(x, g)| rstd * (g - level - x * along));
    let largest = output.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
    Row {
        gradient: gradient.collect(),
        rounding: match problem.op {
            Op::QuantizedRmsNorm => largest / (2.0 * 127.0),
            _ => 0.0,
        },
        output,
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;
    use crate::problems::Pass;

    fn problem(op: Op) -> Problem {
        Problem {
            pass: Pass::Full,
            ..Problem::new(op, [2, 3, 8])
        }
    }

    fn outcome(problem: &Problem, data: &HostData) -> Outcome {
        let mut output = vec![0.0; problem.elements()];
        let mut gradient = output.clone();
        for row in 0..problem.elements() / problem.row() {
            let expected = reference(problem, data, row);
            for column in 0..problem.row() {
                let place = problem.element(row, column);
                output[place] = expected.output[column] as f32;
                gradient[place] = expected.gradient[column] as f32;
            }
        }
        Outcome {
            output,
            gradient: Some(gradient),
            second: None,
        }
    }

    #[test]
    fn the_gradient_agrees_with_central_differences() {
        let ops = Op::VARIANTS.iter().map(|name| name.parse::<Op>().unwrap());
        for op in ops.filter(|op| *op != Op::QuantizedRmsNorm) {
            let problem = problem(op);
            let data = problem.host_data();
            let step = 1e-3;
            for column in 0..problem.row() {
                let sum = |delta: f32| {
                    let mut moved = problem.host_data();
                    moved.input[problem.element(0, column)] += delta;
                    let output = reference(&problem, &moved, 0).output;
                    output.iter().sum::<f64>()
                };
                let difference = (sum(step) - sum(-step)) / (2.0 * f64::from(step));
                let gradient = reference(&problem, &data, 0).gradient[column];
                assert!(
                    (difference - gradient).abs() < 1e-3,
                    "{op}: {difference} {gradient}"
                );
            }
        }
    }

    #[test]
    fn one_wrong_element_or_nan_is_refused_by_name() {
        let problem = problem(Op::InstanceNorm);
        let data = problem.host_data();
        check(&problem, &data, &outcome(&problem, &data)).unwrap();

        let mut wrong = outcome(&problem, &data);
        wrong.output[17] += 0.1;
        let message = check(&problem, &data, &wrong).unwrap_err().to_string();
        assert!(message.contains("element 17 of the output"), "{message}");

        let mut wrong = outcome(&problem, &data);
        wrong.gradient.as_mut().unwrap()[40] = f32::NAN;
        let message = check(&problem, &data, &wrong).unwrap_err().to_string();
        assert!(
            message.contains("element 40 of the gradient is NaN"),
            "{message}"
        );

        let mut short = outcome(&problem, &data);
        short.output.pop();
        assert!(check(&problem, &data, &short).is_err());
    }
}
