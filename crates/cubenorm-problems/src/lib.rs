//! The benchmark's catalogue: operators and shapes, and their data.
//!
//! `cargo xtask bench` selects problems and starts `cubenorm-bench`, which runs them. Both take the
//! problems from here, and their messages from [`protocol`]. Neither Burn nor CubeCL is needed.

mod op;
pub mod protocol;
mod suites;

use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

pub use op::{ALPHA, Op};
pub use suites::Suite;

/// The epsilon of every problem, the default of `burn::nn`'s norms.
pub const EPSILON: f64 = 1e-5;

/// Number of groups of a group norm, if there are enough channels.
const GROUPS: usize = 32;

/// The type of every tensor of a problem.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    Default,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DType {
    /// IEEE single precision.
    #[default]
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
}

impl DType {
    /// The size of an element, in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// A value rounded to this type.
    fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::F16 => half::f16::from_f32(value).to_f32(),
            Self::Bf16 => half::bf16::from_f32(value).to_f32(),
        }
    }
}

/// Memory order of input, output and their gradients.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Layout {
    /// In the order of their dimensions.
    #[default]
    Contiguous,
    /// With axis 1 after all others, as convolutions leave them.
    ChannelsLast,
}

impl Layout {
    fn is_contiguous(&self) -> bool {
        *self == Self::Contiguous
    }
}

/// Which part of a training step is timed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    Default,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Pass {
    /// The operator alone, without autodiff.
    #[default]
    Forward,
    /// The gradients of input and parameters; the forward has already run.
    Backward,
    /// Forward and backward together.
    Full,
}

/// One line of the report: an operator, a shape, a type and a pass.
///
/// ```
/// use cubenorm_problems::Problem;
///
/// let problem: Problem = serde_json::from_str(r#"{"op": "rms_norm", "shape": [4, 8]}"#)?;
/// assert_eq!(problem.to_string(), "rms_norm 4x8 f32 forward");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The operator.
    pub op: Op,
    /// The shape of the input.
    pub shape: Vec<usize>,
    /// The order of its elements in memory.
    #[serde(default, skip_serializing_if = "Layout::is_contiguous")]
    pub layout: Layout,
    /// The type of all tensors.
    #[serde(default)]
    pub dtype: DType,
    /// The timed part.
    #[serde(default)]
    pub pass: Pass,
}

/// A program that computes problems, as rows name it. Cubenorm is first and the copy last, as in a
/// round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Provider {
    /// This project.
    Cubenorm,
    /// `burn::nn`, fusion and autotune on.
    Burn,
    /// `burn::nn` after `cubenorm::install`.
    Installed,
    /// PyTorch.
    Torch,
    /// PyTorch's compiler.
    #[strum(serialize = "torch.compile")]
    TorchCompile,
    /// ONNX Runtime.
    Onnxruntime,
    /// Liger-Kernel.
    Liger,
    /// QuACK.
    Quack,
    /// One elementwise operation of Burn's: the host's cost of a call with next to nothing to
    /// compute.
    Elementwise,
    /// CubeCL's throughput probe of a copy of the bytes that the pass must move.
    Probe,
    /// A copy kernel of the same bytes, launched like a norm: the ceiling.
    Copy,
}

/// Data of a problem, on the host; the same for every provider.
pub struct HostData {
    /// Roughly a mean of 0.5 and a variance of 1.
    pub input: Vec<f32>,
    /// Near one, different in every element.
    pub gamma: Vec<f32>,
    /// Near zero, different in every element.
    pub beta: Vec<f32>,
    /// Distributed as the input: the tensor that is added, the gate, or the key. Empty without one.
    pub second: Vec<f32>,
}

/// A shape as it is written in commands.
///
/// ```
/// assert_eq!(cubenorm_problems::sizes(&[2048, 4096]), "2048x4096");
/// ```
pub fn sizes(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    sizes.join("x")
}

impl Problem {
    /// The forward pass of contiguous float32.
    pub fn new(op: Op, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            op,
            shape: shape.into(),
            layout: Layout::default(),
            dtype: DType::default(),
            pass: Pass::default(),
        }
    }

    /// The shape as it is written in commands.
    pub fn sizes(&self) -> String {
        sizes(&self.shape)
    }

    /// The sizes, and the layout if it is not the usual one.
    pub fn tensor(&self) -> String {
        match self.layout {
            Layout::Contiguous => self.sizes(),
            other => format!("{} {other}", self.sizes()),
        }
    }

    /// Refuses a shape that the operator cannot have.
    pub fn validate(&self) -> Result<()> {
        let least = self.op.least_rank();
        ensure!(
            (least..=4).contains(&self.shape.len()),
            "{} takes {least} to 4 dimensions here, not the {} of {:?}",
            self.op,
            self.shape.len(),
            self.shape,
        );
        ensure!(
            self.elements() > 0,
            "{:?} has no elements to time",
            self.shape
        );
        ensure!(
            self.layout.is_contiguous() || self.shape.len() > 1,
            "{:?} has no channels to be last",
            self.shape,
        );
        ensure!(
            self.op.norm() != Op::GroupNorm || self.shape[1].is_multiple_of(self.groups()),
            "{} channels do not divide into {} groups",
            self.shape[1],
            self.groups(),
        );
        ensure!(
            self.op.trains() || self.pass == Pass::Forward,
            "{} has the forward pass alone here, not {}",
            self.op,
            self.pass,
        );
        ensure!(
            self.op != Op::QuantizedRmsNorm || self.row().is_multiple_of(4),
            "{} takes rows of a multiple of 4 elements, not of {}",
            self.op,
            self.row(),
        );
        ensure!(
            self.layout.is_contiguous() || self.second_shape().is_none(),
            "{} has two tensors, which are contiguous here",
            self.op,
        );
        Ok(())
    }

    /// Number of elements of the input.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The shape of the second tensor: the one that is added, the gate, or the key.
    pub fn second_shape(&self) -> Option<Vec<usize>> {
        match self.op {
            Op::AddRmsNorm | Op::GatedRmsNorm => Some(self.shape.clone()),
            Op::QkNorm => {
                let mut shape = self.shape.clone();
                let heads = shape.len() - 2;
                shape[heads] = shape[heads].div_ceil(4);
                Some(shape)
            }
            _ => None,
        }
    }

    /// Number of elements of the second tensor.
    fn second_elements(&self) -> usize {
        self.second_shape()
            .map_or(0, |shape| shape.iter().product())
    }

    /// Number of groups of a group norm.
    pub fn groups(&self) -> usize {
        GROUPS.min(self.shape[1])
    }

    /// Values in the order of the dimensions, brought into the order of memory.
    pub fn stored(&self, values: &[f32]) -> Vec<f32> {
        if self.layout.is_contiguous() {
            return values.to_vec();
        }
        let positions = self.positions();
        let stored = values
            .chunks_exact(self.shape[1] * positions)
            .flat_map(|sample| {
                (0..positions)
                    .flat_map(move |position| sample.iter().skip(position).step_by(positions))
            });
        stored.copied().collect()
    }

    /// Number of neighbouring elements of one channel, in the order of the dimensions.
    fn positions(&self) -> usize {
        self.shape[2..].iter().product()
    }

    /// Number of elements that share their statistics.
    pub fn row(&self) -> usize {
        match self.op.norm() {
            Op::BatchNorm => self.shape[0] * self.positions(),
            Op::GroupNorm => self.shape[1] / self.groups() * self.positions(),
            Op::InstanceNorm => self.positions(),
            _ => self.shape[self.shape.len() - 1],
        }
    }

    /// Index of element `column` of `row` in the input.
    pub fn element(&self, row: usize, column: usize) -> usize {
        match self.op {
            Op::BatchNorm => {
                let positions = self.positions();
                let (sample, position) = (column / positions, column % positions);
                (sample * self.shape[1] + row) * positions + position
            }
            _ => row * self.row() + column,
        }
    }

    /// Number of elements of scale and bias.
    pub fn parameters(&self) -> usize {
        match self.op.norm() {
            Op::BatchNorm | Op::GroupNorm | Op::InstanceNorm => self.shape[1],
            _ if self.op == Op::ModulatedLayerNorm => self.shape[0] * self.row(),
            _ => self.row(),
        }
    }

    /// Which element of scale and bias belongs to element `column` of `row`.
    pub fn parameter(&self, row: usize, column: usize) -> usize {
        match self.op.norm() {
            Op::BatchNorm | Op::GroupNorm | Op::InstanceNorm => {
                self.element(row, column) / self.positions() % self.shape[1]
            }
            _ if self.op == Op::ModulatedLayerNorm => {
                let rows = self.elements() / self.row() / self.shape[0];
                row / rows * self.row() + column
            }
            _ => column,
        }
    }

    /// True if the statistics are provided: running ones, of mean 0 and variance 1.
    pub fn is_inference(&self) -> bool {
        self.op == Op::BatchNorm && self.pass == Pass::Forward
    }

    /// The least traffic that the pass can do, in bytes: every tensor it needs, once.
    pub fn bytes(&self) -> usize {
        // Of the forward pass, and of the backward pass.
        let forward = match self.op {
            // Both in, and out: output and sum, or query and key.
            Op::AddRmsNorm | Op::QkNorm => 2 * (self.elements() + self.second_elements()),
            // Input and gate in, output out.
            Op::GatedRmsNorm => 2 * self.elements() + self.second_elements(),
            // The codes and scales are counted below.
            Op::QuantizedRmsNorm => self.elements(),
            _ => 2 * self.elements(),
        };
        let backward = match self.op {
            // Input, gate and incoming gradient in, the gradients of both out.
            Op::GatedRmsNorm => 3 * self.elements() + 2 * self.second_elements(),
            // Input, or sum, and incoming gradient in, gradient of the input out.
            _ => 3 * self.elements(),
        };
        // Scale and bias in.
        let given = 1 + usize::from(self.op.has_bias());
        let (tensors, parameters) = match self.pass {
            Pass::Forward => (forward, given),
            // Scale in, the gradients of both out.
            Pass::Backward => (backward, 1 + given),
            Pass::Full => (forward + backward, 1 + 2 * given),
        };
        let codes = match self.op {
            Op::QuantizedRmsNorm => self.elements() + 4 * (self.elements() / self.row()),
            _ => 0,
        };
        (tensors + parameters * self.parameters()) * self.dtype.size() + codes
    }

    /// Input and parameters, the same in every process, rounded to the problem's type.
    pub fn host_data(&self) -> HostData {
        let mut noise = Noise::default();
        let mut draw = |count, center, spread| {
            (0..count)
                .map(|_| self.dtype.round(center + spread * noise.draw()))
                .collect::<Vec<f32>>()
        };
        HostData {
            input: draw(self.elements(), 0.5, 1.75),
            gamma: draw(self.parameters(), 1.0, 0.25),
            beta: draw(self.parameters(), 0.0, 0.25),
            second: draw(self.second_elements(), 0.5, 1.75),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op, dtype, pass, ..
        } = self;
        write!(f, "{op} {} {dtype} {pass}", self.tensor())
    }
}

/// Xorshift: the same numbers in every process, on every machine.
pub struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Noise {
    /// The next number, uniform in -1 to 1.
    pub fn draw(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_prints_shape_and_layout() {
        let mut printed = Problem::new(Op::LayerNorm, [8, 64]);
        assert_eq!(printed.to_string(), "layer_norm 8x64 f32 forward");
        printed.layout = Layout::ChannelsLast;
        assert_eq!(printed.tensor(), "8x64 channels_last");
    }

    #[test]
    fn a_channel_keeps_its_parameter_in_every_sample() {
        for op in [Op::InstanceNorm, Op::BatchNorm, Op::GroupNorm] {
            let problem = Problem::new(op, [2, 3, 4, 5]);
            let length = problem.row();
            assert_eq!(problem.parameters(), 3);
            let mut seen = [false; 120];
            for place in 0..problem.elements() {
                let (row, column) = (place / length, place % length);
                let element = problem.element(row, column);
                assert_eq!(problem.parameter(row, column), element / 20 % 3, "{op}");
                assert!(!std::mem::replace(&mut seen[element], true), "{op}");
            }
        }
    }

    #[test]
    fn channels_last_stores_channels_contiguously() {
        let contiguous = Problem::new(Op::BatchNorm, [2, 3, 2, 1]);
        let last = Problem {
            layout: Layout::ChannelsLast,
            ..contiguous.clone()
        };
        let values: Vec<f32> = (0..12).map(|value| value as f32).collect();
        assert_eq!(contiguous.stored(&values), values);
        let expected = [0., 2., 4., 1., 3., 5., 6., 8., 10., 7., 9., 11.];
        assert_eq!(last.stored(&values), expected);
    }

    #[test]
    fn a_sample_has_a_modulation_of_its_own() {
        let problem = Problem::new(Op::ModulatedLayerNorm, [2, 3, 4]);
        assert_eq!(problem.parameters(), 8);
        let found = (0..6).map(|row| problem.parameter(row, 1));
        assert_eq!(found.collect::<Vec<_>>(), [1, 1, 1, 5, 5, 5]);
    }

    #[test]
    fn traffic_counts_each_tensor_once() {
        let bytes = |op, pass| {
            let problem = Problem::new(op, [2, 4, 8]);
            Problem { pass, ..problem }.bytes()
        };
        // 64 elements, 8 parameters, and a key of a quarter of the heads.
        assert_eq!(bytes(Op::RmsNorm, Pass::Forward), 4 * (128 + 8));
        assert_eq!(bytes(Op::AddRmsNorm, Pass::Forward), 4 * (256 + 8));
        assert_eq!(bytes(Op::GatedRmsNorm, Pass::Backward), 4 * (320 + 16));
        assert_eq!(bytes(Op::QkNorm, Pass::Forward), 4 * (160 + 8));
        assert_eq!(
            bytes(Op::ModulatedLayerNorm, Pass::Forward),
            4 * (128 + 2 * 16)
        );
        // Codes of a byte, and a scale for each of 8 rows.
        assert_eq!(
            bytes(Op::QuantizedRmsNorm, Pass::Forward),
            4 * (64 + 8) + 64 + 32
        );
    }

    #[test]
    fn inputs_are_repeatable_and_spread() {
        let problem = Problem::new(Op::LayerNorm, [32768, 256]);
        let input = problem.host_data().input;
        assert_eq!(input, problem.host_data().input);
        let mean = input.iter().sum::<f32>() / input.len() as f32;
        assert!((mean - 0.5).abs() < 0.01, "mean {mean}");
    }
}
