//! The host reference in `f64` that an output must agree with before it is timed.

use anyhow::{Result, ensure};

use crate::problems::{DType, EPSILON, HostData, Op, Problem};

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
pub struct Outcome {
    pub output: Vec<f32>,
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
    for row in 0..data.input.len() / length {
        let places: Vec<usize> = (0..length)
            .map(|column| problem.element(row, column))
            .collect();
        let expected = reference(problem, data, row);
        compare(
            "output",
            &places,
            &expected.output,
            &outcome.output,
            tolerance,
        )?;
        if let Some(gradient) = &outcome.gradient {
            compare("gradient", &places, &expected.gradient, gradient, tolerance)?;
        }
    }
    Ok(())
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
}

fn reference(problem: &Problem, data: &HostData, row: usize) -> Row {
    let length = problem.row();
    let x: Vec<f64> = (0..length)
        .map(|column| data.input[problem.element(row, column)].into())
        .collect();
    let (centered, biased) = match problem.op {
        Op::RmsNorm => (false, false),
        _ => (true, true),
    };
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

    let parameter = |column| problem.parameter(row, column);
    let gamma: Vec<f64> = (0..x.len())
        .map(|c| data.gamma[parameter(c)].into())
        .collect();
    let normalized: Vec<f64> = x.iter().map(|x| (x - center) * rstd).collect();

    let output = normalized
        .iter()
        .zip(&gamma)
        .enumerate()
        .map(|(column, (x, g))| {
            let beta = if biased {
                data.beta[parameter(column)].into()
            } else {
                0.0
            };
            x * g + beta
        });
    // The derivative through the statistics removes two parts of the incoming gradient (here gamma
    // itself): the part along the normalized row and, if a mean was subtracted, its mean.
    let along = mean(&mut normalized.iter().zip(&gamma).map(|(x, g)| x * g));
    let level = if centered {
        mean(&mut gamma.iter().copied())
    } else {
        0.0
    };
    let gradient = normalized
        .iter()
        .zip(&gamma)
        .map(|(x, g)| rstd * (g - level - x * along));

    Row {
        output: output.collect(),
        gradient: gradient.collect(),
    }
}

#[cfg(test)]
mod tests {
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
        }
    }

    #[test]
    fn the_gradient_agrees_with_central_differences() {
        use Op::*;
        for op in [LayerNorm, RmsNorm, BatchNorm, GroupNorm, InstanceNorm] {
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
