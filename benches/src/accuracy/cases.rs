//! The catalogue: operators, values and types.

use std::fmt;

use cubenorm_core::DType;
use cubenorm_reference::round;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use crate::problems::{Noise, sizes};

/// The operator under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    /// Mean and variance over the last axis; scale and bias of that axis.
    LayerNorm,
    /// Mean square over the last axis; scale of that axis.
    RmsNorm,
    /// Mean and variance over all axes but the first two; scale and bias per channel, axis 1.
    InstanceNorm,
    /// Provided mean and variance, scale and bias per channel, axis 1.
    BatchNorm,
    /// Mean and variance over all axes; no parameters.
    MeanVarianceNorm,
}

/// Distribution of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Input {
    /// Normal around 0.5 with deviation 1.
    WellConditioned,
    /// Normal around 1e4 with deviation 1. float16 holds little of that deviation and bfloat16
    /// none, so their rows are nearly constant.
    LargeOffset,
    /// Normal around 0 with variance 1e-12, and an epsilon as large, so that neither hides the
    /// other.
    TinyVariance,
    /// Magnitudes from 1e-30 to 1e30, evenly in their logarithm, or in the range of the type
    /// (float16: 1e-7 to 3e4), with both signs. Every other row mixes magnitudes. The rows between
    /// have one magnitude each.
    WideRange,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The operator.
    pub op: Op,
    /// The shape of the input.
    pub shape: Vec<usize>,
    /// The type of every tensor.
    pub dtype: DType,
    /// Distribution of the input.
    pub input: Input,
}

/// Which cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Suite {
    /// Short rows, float32 and float16.
    Quick,
    /// Long rows too, and all types.
    Full,
}

/// Data of a case: values that its type holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// Row-major, in the case's shape.
    pub input: Vec<f64>,
    /// One for each parameter's element, as all that follow.
    pub scale: Option<Vec<f64>>,
    /// Added after the scale.
    pub bias: Option<Vec<f64>>,
    /// Provided means.
    pub mean: Option<Vec<f64>>,
    /// Provided variances.
    pub variance: Option<Vec<f64>>,
    /// A number of float32, so that a float32 API gets the same one.
    pub epsilon: f64,
}

/// Short rows, and the shapes that operators with channels need.
const SHAPES: &[(Op, &[usize])] = &[
    (Op::LayerNorm, &[32, 768]),
    (Op::RmsNorm, &[32, 768]),
    (Op::InstanceNorm, &[4, 8, 28, 28]),
    (Op::BatchNorm, &[4, 8, 28, 28]),
    (Op::MeanVarianceNorm, &[2, 8, 32, 32]),
];

/// Rows so long that adding them up one by one in float32 loses digits.
const LONG: &[(Op, &[usize])] = &[
    (Op::LayerNorm, &[4, 65536]),
    (Op::RmsNorm, &[4, 65536]),
    (Op::InstanceNorm, &[1, 4, 256, 256]),
];

impl Suite {
    /// The cases, in the order of the table.
    pub fn cases(self) -> Vec<Case> {
        let (more, dtypes): (_, &[DType]) = match self {
            Self::Quick => ([].iter(), &[DType::F32, DType::F16]),
            Self::Full => (
                LONG.iter(),
                &[DType::F32, DType::F16, DType::BF16, DType::F64],
            ),
        };
        let mut cases = Vec::new();
        for (op, shape) in SHAPES.iter().chain(more) {
            for &dtype in dtypes {
                cases.extend(Input::VARIANTS.iter().map(|&input| Case {
                    op: *op,
                    shape: shape.to_vec(),
                    dtype,
                    input,
                }));
            }
        }
        cases
    }
}

impl Case {
    /// Number of elements of the input.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of neighbouring elements that share their statistics.
    pub fn row(&self) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.shape[self.shape.len() - 1],
            Op::InstanceNorm | Op::BatchNorm => self.shape[2..].iter().product(),
            Op::MeanVarianceNorm => self.elements(),
        }
    }

    /// Number of elements of each parameter.
    pub fn parameters(&self) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.row(),
            Op::InstanceNorm | Op::BatchNorm => self.shape[1],
            Op::MeanVarianceNorm => 0,
        }
    }

    /// Which element of the parameters belongs to element `column` of `row`.
    pub fn parameter(&self, row: usize, column: usize) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => column,
            Op::InstanceNorm | Op::BatchNorm => row % self.shape[1],
            Op::MeanVarianceNorm => 0,
        }
    }

    /// The values, the same in every process.
    pub fn data(&self) -> Data {
        let mut draw = Draw::new();
        let input = (0..self.elements() / self.row())
            .flat_map(|row| self.draw_row(row, &mut draw))
            .collect();
        let parameters = self.parameters();
        let mut near = |center: f64, wanted: bool| {
            let values = (0..parameters).map(|_| center + 0.25 * draw.normal());
            wanted.then(|| self.staging(values.collect()))
        };
        let has_scale = self.op != Op::MeanVarianceNorm;
        let scale = near(1.0, has_scale);
        let bias = near(0.0, has_scale && self.op != Op::RmsNorm);
        let mut data = Data {
            input: self.staging(input),
            scale,
            bias,
            mean: None,
            variance: None,
            epsilon: f64::from(match self.input {
                Input::TinyVariance => 1e-12_f32,
                _ => 1e-5,
            }),
        };
        if self.op == Op::BatchNorm {
            let (mean, variance) = self.given(&data.input, &mut draw);
            data.mean = Some(self.staging(mean));
            data.variance = Some(self.staging(variance));
        }
        data
    }

    fn draw_row(&self, row: usize, draw: &mut Draw) -> Vec<f64> {
        let length = self.row();
        let mut around = |mean: f64, deviation: f64| {
            (0..length)
                .map(|_| mean + deviation * draw.normal())
                .collect()
        };
        match self.input {
            Input::WellConditioned => around(0.5, 1.0),
            Input::LargeOffset => around(1e4, 1.0),
            Input::TinyVariance => around(0.0, 1e-6),
            Input::WideRange if row % 2 == 1 => {
                let magnitude = self.wide(draw);
                (0..length).map(|_| magnitude * draw.uniform()).collect()
            }
            Input::WideRange => (0..length)
                .map(|_| self.wide(draw) * draw.uniform().signum())
                .collect(),
        }
    }

    /// A magnitude, evenly in its logarithm.
    fn wide(&self, draw: &mut Draw) -> f64 {
        let (least, most) = match self.dtype {
            DType::F16 => (1e-7, 3e4),
            DType::BF16 | DType::F32 | DType::F64 => (1e-30, 1e30),
        };
        let share = 0.5 * (draw.uniform() + 1.0);
        f64::exp(f64::ln(least) + share * (f64::ln(most) - f64::ln(least)))
    }

    /// Means and variances for batch norm: the input's, except if no type would hold them.
    fn given(&self, input: &[f64], draw: &mut Draw) -> (Vec<f64>, Vec<f64>) {
        let channels = self.shape[1];
        let rows: Vec<&[f64]> = input.chunks_exact(self.row()).collect();
        let of_channel = |channel: usize| {
            let rows = rows.iter().skip(channel).step_by(channels);
            let values: Vec<f64> = rows.flat_map(|row| row.iter().copied()).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let squares = values.iter().map(|value| (value - mean).powi(2));
            (mean, squares.sum::<f64>() / values.len() as f64)
        };
        match self.input {
            Input::WideRange => (0..channels)
                .map(|_| (self.wide(draw), self.wide(draw)))
                .unzip(),
            _ => (0..channels).map(of_channel).unzip(),
        }
    }

    fn staging(&self, values: Vec<f64>) -> Vec<f64> {
        let rounded = |value| round(self.dtype, value);
        values.into_iter().map(rounded).collect()
    }
}

/// As the names of files have it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = sizes(&self.shape);
        write!(f, "{}-{shape}-{}-{}", self.op, self.dtype, self.input)
    }
}

/// Random numbers, the same in every process.
struct Draw(Noise);

impl Draw {
    fn new() -> Self {
        Self(Noise::default())
    }

    /// Uniform in -1 to 1, never 0.
    fn uniform(&mut self) -> f64 {
        // Noise has 24 bits, float64 more than twice that.
        let (high, low) = (f64::from(self.0.draw()), f64::from(self.0.draw()));
        match high + low / f64::from(1 << 24) {
            0.0 => 0.5,
            value => value,
        }
    }

    /// Normal with mean 0 and deviation 1, after Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().abs().min(1.0).ln()).sqrt();
        radius * (std::f64::consts::PI * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_one_case() {
        let cases = Suite::Full.cases();
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::to_string).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.contains("layer_norm-32x768-bf16-large_offset"));
    }

    #[test]
    fn values_are_finite_and_as_described() {
        for case in Suite::Quick.cases() {
            let data = case.data();
            assert_eq!(data.input.len(), case.elements(), "{case}");
            let parameters = [&data.scale, &data.bias, &data.mean, &data.variance];
            for parameter in parameters.into_iter().flatten() {
                assert_eq!(parameter.len(), case.parameters(), "{case}");
                assert!(parameter.iter().all(|value| value.is_finite()), "{case}");
            }
            let mean = data.input.iter().sum::<f64>() / data.input.len() as f64;
            let near = match case.input {
                Input::WellConditioned => (mean - 0.5).abs() < 0.02,
                Input::LargeOffset => (mean - 1e4).abs() < 0.1,
                Input::TinyVariance => mean.abs() < 1e-7,
                Input::WideRange => data.input.iter().all(|value| value.is_finite()),
            };
            assert!(near, "{case}: mean {mean}");
        }
    }
}
