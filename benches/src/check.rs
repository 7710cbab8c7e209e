//! The host reference in `f64` that an output must agree with before it is timed.

use anyhow::{Result, ensure};

use crate::problems::{EPSILON, HostData, Op, Problem};

/// Largest difference allowed, relative to the larger of one and the expected value.
///
/// Wide enough for the chains of `f32` operations that the slower contenders run, far too narrow
/// for a kernel that missed a row, a column or a parameter.
const TOLERANCE: f64 = 5e-3;

/// What a contender computed, read back to the host.
pub struct Outcome {
    pub output: Vec<f32>,
    /// Gradient of the input where every element of the output has gradient one; the passes with
    /// a backward have it.
    pub gradient: Option<Vec<f32>>,
}

/// Compares what a contender computed with the reference.
pub fn check(problem: &Problem, data: &HostData, outcome: &Outcome) -> Result<()> {
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
    for (row, x) in data.input.chunks_exact(length).enumerate() {
        let start = row * length;
        let expected = reference(problem, data, row, x);
        compare("output", start, &expected.output, &outcome.output)?;
        if let Some(gradient) = &outcome.gradient {
            compare("gradient", start, &expected.gradient, gradient)?;
        }
    }
    Ok(())
}

fn compare(what: &str, start: usize, expected: &[f64], actual: &[f32]) -> Result<()> {
    for (index, (&expected, &actual)) in expected.iter().zip(&actual[start..]).enumerate() {
        let difference = (f64::from(actual) - expected).abs();
        // NaN compares false, so it fails here.
        ensure!(
            difference <= TOLERANCE * expected.abs().max(1.0),
            "wrong result: element {} of the {what} is {actual}, expected {expected}",
            start + index,
        );
    }
    Ok(())
}

/// What a pass must return for one row.
struct Row {
    output: Vec<f64>,
    gradient: Vec<f64>,
}

fn reference(problem: &Problem, data: &HostData, row: usize, x: &[f32]) -> Row {
    let n = x.len() as f64;
    let (centered, biased) = match problem.op {
        Op::LayerNorm | Op::InstanceNorm => (true, true),
        Op::RmsNorm => (false, false),
    };
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / n;

    let center = if centered {
        mean(&mut x.iter().map(|&x| x.into()))
    } else {
        0.0
    };
    let square = mean(&mut x.iter().map(|&x| (f64::from(x) - center).powi(2)));
    let rstd = 1.0 / (square + EPSILON).sqrt();

    let parameter = |column| problem.parameter(row, column);
    let gamma: Vec<f64> = (0..x.len())
        .map(|c| data.gamma[parameter(c)].into())
        .collect();
    let normalized: Vec<f64> = x.iter().map(|&x| (f64::from(x) - center) * rstd).collect();

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
    // The derivative through the statistics takes out of the incoming gradient (here gamma itself)
    // its part along the normalized row and, where a mean was subtracted, its mean.
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
    use crate::problems::{DType, Pass};

    fn problem(op: Op) -> Problem {
        Problem {
            op,
            shape: vec![2, 3, 8],
            dtype: DType::F32,
            pass: Pass::Full,
        }
    }

    fn outcome(problem: &Problem, data: &HostData) -> Outcome {
        let rows = data.input.chunks_exact(problem.row()).enumerate();
        let rows: Vec<Row> = rows
            .map(|(row, x)| reference(problem, data, row, x))
            .collect();
        let narrow = |part: fn(&Row) -> &Vec<f64>| {
            rows.iter()
                .flat_map(|row| part(row).iter().map(|&v| v as f32))
                .collect::<Vec<f32>>()
        };
        Outcome {
            output: narrow(|row| &row.output),
            gradient: Some(narrow(|row| &row.gradient)),
        }
    }

    #[test]
    fn the_gradient_agrees_with_central_differences() {
        for op in [Op::LayerNorm, Op::RmsNorm, Op::InstanceNorm] {
            let problem = problem(op);
            let data = problem.host_data();
            let step = 1e-3;
            for column in 0..problem.row() {
                let sum = |delta: f32| {
                    let mut x = data.input[..problem.row()].to_vec();
                    x[column] += delta;
                    reference(&problem, &data, 0, &x).output.iter().sum::<f64>()
                };
                let difference = (sum(step) - sum(-step)) / (2.0 * f64::from(step));
                let x = &data.input[..problem.row()];
                let gradient = reference(&problem, &data, 0, x).gradient[column];
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
