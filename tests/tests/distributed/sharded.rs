//! Layer and RMS norm of rows whose parts are on different members.

use burn::tensor::{DType, Device};
use cubenorm::ShardedNorm;
use cubenorm_core::{DType as CoreDType, Epsilon, NormDesc, Statistics, TensorDesc};
use cubenorm_tests::case::noise;
use cubenorm_tests::tensors::devices;

use crate::support::{all, allowed, assert_close, dtypes, expected, rounded, upload, values};

const EPSILON: f64 = 1e-3;

struct Rows {
    shape: [usize; 2],
    dtype: DType,
    norm: ShardedNorm,
    input: Vec<f64>,
    dy: Vec<f64>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
}

/// Results of a member, for its columns.
struct Part {
    output: Vec<f64>,
    dx: Vec<f64>,
    dgamma: Vec<f64>,
    dbeta: Vec<f64>,
}

impl Rows {
    fn new(shape: [usize; 2], dtype: DType, norm: ShardedNorm, seed: u64) -> Self {
        let elements = 0..shape[0] * shape[1];
        let params = |salt: u64| (0..shape[1]).map(move |at| 0.5 * noise(seed ^ salt, at));
        // The parts of a row have different means.
        let input = elements.clone().map(|at| {
            let half = if at % shape[1] < shape[1] / 2 {
                -1.0
            } else {
                2.0
            };
            half + 2.0 * noise(seed, at)
        });
        Self {
            input: rounded(input, dtype),
            dy: rounded(elements.map(|at| noise(seed ^ 0x61, at)), dtype),
            gamma: rounded(params(0x62).map(|x| 1.0 + x), dtype),
            beta: rounded(params(0x63), dtype),
            shape,
            dtype,
            norm,
        }
    }

    fn has_bias(&self) -> bool {
        self.norm == ShardedNorm::Layer
    }

    /// Runs both passes on members that have the columns between these limits.
    fn run(&self, limits: &[usize], device: &Device) -> Vec<Part> {
        let [rows, cols] = self.shape;
        all(limits.len() - 1, |rank, member| {
            let device = device.clone().autodiff();
            let columns = limits[rank]..limits[rank + 1];
            let part = columns.len();
            let tensor = |values: &[f64]| {
                let of_row = |row: &[f64]| row[columns.clone()].to_vec();
                let own: Vec<f64> = values.chunks_exact(cols).flat_map(of_row).collect();
                upload(&own, [rows, part], self.dtype, &device)
            };
            let param = |values: &[f64]| {
                upload(&values[columns.clone()], [part], self.dtype, &device).require_grad()
            };
            let (gamma, beta) = (param(&self.gamma), param(&self.beta));
            let x = tensor(&self.input).require_grad();
            let y = cubenorm::norm_sharded(
                x.clone(),
                gamma.clone(),
                self.has_bias().then(|| beta.clone()),
                self.norm,
                EPSILON,
                &member,
            );
            let gradients = (y.clone() * tensor(&self.dy)).sum().backward();
            Part {
                output: values(y),
                dx: values(x.grad(&gradients).unwrap()),
                dgamma: values(gamma.grad(&gradients).unwrap()),
                dbeta: match self.has_bias() {
                    true => values(beta.grad(&gradients).unwrap()),
                    false => Vec::new(),
                },
            }
        })
    }
}

/// Columns of all members, as whole rows.
fn joined(limits: &[usize], parts: &[Part], rows: usize, of: fn(&Part) -> &Vec<f64>) -> Vec<f64> {
    let of_row = |row: usize| {
        parts.iter().enumerate().flat_map(move |(rank, part)| {
            let size = limits[rank + 1] - limits[rank];
            of(part)[row * size..(row + 1) * size].to_vec()
        })
    };
    (0..rows).flat_map(of_row).collect()
}

impl Rows {
    fn check(&self, limits: &[usize], device: &Device, at: &str) {
        let [rows, cols] = self.shape;
        let at = &format!(
            "{at} {:?} {:?} {:?} split at {limits:?}",
            self.norm, self.shape, self.dtype
        );
        let parts = self.run(limits, device);
        let param = || TensorDesc::contiguous([cols], CoreDType::F64);
        let statistics = match self.norm {
            ShardedNorm::Layer => Statistics::MeanVariance,
            ShardedNorm::Rms => Statistics::MeanSquare,
        };
        let input = TensorDesc::contiguous(self.shape, CoreDType::F64);
        let desc = NormDesc::new(input, [1], statistics)
            .with_epsilon(Epsilon::InsideSqrt(EPSILON))
            .with_scale(param())
            .with_bias(self.has_bias().then(param));
        let tensors = [&self.input, &self.gamma, &self.beta, &self.dy].map(Vec::as_slice);
        let expected = expected(desc, tensors, rows, |row| row * cols);
        let largest = |values: &[f64]| values.iter().fold(1.0f64, |a, x| a.max(x.abs()));
        let rstd = largest(&expected.forward.rstd);
        let magnitude = 4.0 * 1.5 * rstd;
        let through = magnitude * rstd * largest(&expected.forward.output);
        let off = |magnitude: f64| move |_, value: f64| allowed(self.dtype, cols, magnitude, value);

        let output = joined(limits, &parts, rows, |part| &part.output);
        assert_close(
            &format!("{at}: output"),
            &output,
            &expected.forward.output,
            off(magnitude),
        );
        // `dy * gamma` is rounded to the dtype before it is summed.
        let rounding =
            cubenorm_tests::tolerance::unit_roundoff(crate::support::core_dtype(self.dtype));
        let off_dx = |at, value| {
            let rounded = if self.dtype == DType::F32 {
                0.0
            } else {
                4.0 * rounding * rstd
            };
            off(through)(at, value) + rounded / (cols as f64).sqrt()
        };
        let dx = joined(limits, &parts, rows, |part| &part.dx);
        assert_close(&format!("{at}: dx"), &dx, &expected.gradients.input, off_dx);
        let of_params = magnitude * (rows as f64).sqrt();
        let dgamma: Vec<f64> = parts.iter().flat_map(|part| part.dgamma.clone()).collect();
        let should = &expected.gradients.scale;
        assert_close(&format!("{at}: dgamma"), &dgamma, should, off(of_params));
        if self.has_bias() {
            let dbeta: Vec<f64> = parts.iter().flat_map(|part| part.dbeta.clone()).collect();
            let should = &expected.gradients.bias;
            assert_close(&format!("{at}: dbeta"), &dbeta, should, off(of_params));
        }
    }
}

#[test]
fn parts_of_rows_equal_whole_rows() {
    for (name, device) in devices() {
        for dtype in dtypes(name, &device) {
            for norm in [ShardedNorm::Layer, ShardedNorm::Rms] {
                for (seed, shape) in [[6, 16], [3, 129], [40, 8]].into_iter().enumerate() {
                    let rows = Rows::new(shape, dtype, norm, seed as u64);
                    let cols = shape[1];
                    for split in [0, 1, cols / 2, cols - 1] {
                        rows.check(&[0, split, cols], &device, name);
                    }
                }
            }
        }
    }
}

#[test]
fn four_members_normalize_rows_of_any_rank() {
    for (name, device) in devices() {
        let rows = Rows::new([8, 64], DType::F32, ShardedNorm::Layer, 21);
        rows.check(&[0, 16, 32, 48, 64], &device, name);
        // [2, 4, part] has the results of [8, part].
        let parts = rows.run(&[0, 40, 64], &device);
        let cubes = all(2, |rank, member| {
            let columns = [0..40, 40..64][rank].clone();
            let of_row = |row: &[f64]| row[columns.clone()].to_vec();
            let own: Vec<f64> = rows.input.chunks_exact(64).flat_map(of_row).collect();
            let x = upload(&own, [2, 4, columns.len()], DType::F32, &device);
            let param = |values: &[f64]| {
                upload(
                    &values[columns.clone()],
                    [columns.len()],
                    DType::F32,
                    &device,
                )
            };
            let (gamma, beta) = (param(&rows.gamma), param(&rows.beta));
            let y = cubenorm::norm_sharded(x, gamma, beta, rows.norm, EPSILON, &member);
            values(y)
        });
        for (part, cube) in parts.iter().zip(cubes) {
            assert_close(name, &cube, &part.output, |_, _| 1e-5);
        }
    }
}

#[test]
fn no_rows_exchange_nothing() {
    for (name, device) in devices() {
        let y = all(1, |_, member| {
            let x = upload(&[], [0, 4], DType::F32, &device);
            cubenorm::norm_sharded(x, None, None, ShardedNorm::Layer, EPSILON, &member).dims()
        });
        assert_eq!(y, [[0, 4]], "{name}");
    }
}
