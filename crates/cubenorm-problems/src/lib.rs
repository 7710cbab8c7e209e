//! The benchmark's catalogue: operators and shapes, and their data.
//!
//! `cargo xtask bench` selects problems and starts `cubenorm-bench`, which runs them. Both take the
//! problems from here, and their messages from [`protocol`]. Neither Burn nor CubeCL is needed.

pub mod protocol;

use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

/// The epsilon of every problem, the default of `burn::nn`'s norms.
pub const EPSILON: f64 = 1e-5;

/// Number of groups of a group norm, if there are enough channels.
const GROUPS: usize = 32;

/// The operator under test.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    /// Mean and variance over the last axis; scale and bias of that axis.
    LayerNorm,
    /// Mean square over the last axis; scale of that axis.
    RmsNorm,
    /// Mean and variance over all axes but axis 1; scale and bias per channel, axis 1. The forward
    /// pass alone is inference, with running statistics of 0 and 1; the others train.
    BatchNorm,
    /// Mean and variance over the channels of a group and all axes after them; scale and bias per
    /// channel, axis 1.
    GroupNorm,
    /// Mean and variance over all axes but the first two; scale and bias per channel, axis 1.
    InstanceNorm,
}

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

/// A named list of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Suite {
    /// A few shapes of every kind of norm, in f32; minutes on a CPU.
    Quick,
    /// The shapes of all suites, forward and with the backward, in f32 and f16.
    Full,
    /// The hidden sizes of common transformers.
    Transformer,
    /// The feature maps of common vision networks.
    Vision,
    /// Shapes whose launch costs more than the work.
    Tiny,
    /// Shapes that no vector width or block divides, and the longest and shortest rows.
    Odd,
    /// What models call on a GPU, from one token to feature maps of 200 MiB. `full` lacks it.
    Gpu,
    /// Layer and RMS norm of rows of 512 to 65,536 elements, in tensors of 256 MiB. `full` lacks it.
    Rows,
}

impl Suite {
    /// The problems of this suite.
    pub fn problems(self) -> Vec<Problem> {
        let every = |shapes: &[Shaped]| {
            let problems = shapes.iter().flat_map(|shaped| {
                let kinds = [DType::F32, DType::F16]
                    .into_iter()
                    .flat_map(|dtype| [Pass::Forward, Pass::Full].map(|pass| (dtype, pass)));
                kinds.map(|(dtype, pass)| problem(shaped, dtype, pass))
            });
            problems.collect::<Vec<Problem>>()
        };
        match self {
            Self::Quick => {
                let part = |shapes: &[Shaped], pass| {
                    let problems = shapes.iter().map(|s| problem(s, DType::F32, pass));
                    problems.collect::<Vec<Problem>>()
                };
                [part(QUICK, Pass::Forward), part(QUICK_FULL, Pass::Full)].concat()
            }
            Self::Full => {
                let suites = [Self::Transformer, Self::Vision, Self::Tiny, Self::Odd];
                let others = suites.map(Self::problems).concat();
                let trained = QUICK_FULL.iter().filter(|shaped| !QUICK.contains(shaped));
                let quick: Vec<Shaped> = QUICK.iter().chain(trained).copied().collect();
                [every(&quick), others].concat()
            }
            Self::Transformer => every(TRANSFORMER),
            Self::Vision => {
                let mut last = every(CHANNELS_LAST);
                for problem in &mut last {
                    problem.layout = Layout::ChannelsLast;
                }
                [every(VISION), last].concat()
            }
            Self::Tiny => every(TINY),
            Self::Odd => every(ODD),
            Self::Gpu => {
                let of = |&(op, shape, layout, dtype, pass): &Called| Problem {
                    layout,
                    ..problem(&(op, shape), dtype, pass)
                };
                GPU.iter().map(of).collect()
            }
            Self::Rows => {
                let mut problems = Vec::new();
                for dtype in [DType::Bf16, DType::F16, DType::F32] {
                    for cols in ROWS {
                        let shape: &[usize] = &[TENSOR / dtype.size() / cols, cols];
                        for op in [Op::LayerNorm, Op::RmsNorm] {
                            let passes = [Pass::Forward, Pass::Backward];
                            problems.extend(passes.map(|pass| problem(&(op, shape), dtype, pass)));
                        }
                    }
                }
                problems
            }
        }
    }
}

type Shaped<'a> = (Op, &'a [usize]);
type Called = (Op, &'static [usize], Layout, DType, Pass);

fn problem((op, shape): &Shaped, dtype: DType, pass: Pass) -> Problem {
    Problem {
        dtype,
        pass,
        ..Problem::new(*op, *shape)
    }
}

/// A row that fits a cube, many short rows, few long ones; and a feature map.
const QUICK: &[Shaped] = &[
    (Op::LayerNorm, &[2048, 4096]),
    (Op::LayerNorm, &[32768, 256]),
    (Op::LayerNorm, &[64, 65536]),
    (Op::RmsNorm, &[2048, 4096]),
    (Op::InstanceNorm, &[8, 64, 128, 128]),
];

const QUICK_FULL: &[Shaped] = &[
    (Op::LayerNorm, &[2048, 4096]),
    (Op::RmsNorm, &[2048, 4096]),
    (Op::BatchNorm, &[8, 64, 128, 128]),
    (Op::GroupNorm, &[8, 64, 128, 128]),
    (Op::InstanceNorm, &[8, 64, 128, 128]),
];

const TRANSFORMER: &[Shaped] = &[
    // MiniLM and BERT base, 32 sentences of 128 tokens.
    (Op::LayerNorm, &[4096, 384]),
    (Op::LayerNorm, &[4096, 768]),
    // ViT-B/16, 32 images.
    (Op::LayerNorm, &[6304, 768]),
    // A prompt of Llama 8B and of Llama 70B.
    (Op::RmsNorm, &[1024, 4096]),
    (Op::RmsNorm, &[512, 8192]),
];

const VISION: &[Shaped] = &[
    // ResNet-50, 8 images: first and last stage.
    (Op::BatchNorm, &[8, 64, 112, 112]),
    (Op::BatchNorm, &[8, 2048, 7, 7]),
    // A UNet of a diffusion model.
    (Op::GroupNorm, &[2, 320, 64, 64]),
    (Op::GroupNorm, &[2, 1280, 16, 16]),
    // ConvNeXt, 8 images, channels last.
    (Op::LayerNorm, &[8, 56, 56, 96]),
    (Op::LayerNorm, &[8, 14, 14, 384]),
    // A style-transfer network's first and last feature maps.
    (Op::InstanceNorm, &[1, 32, 720, 720]),
    (Op::InstanceNorm, &[1, 128, 180, 180]),
];

/// Feature maps that a convolution of Burn's returns, in its memory order.
const CHANNELS_LAST: &[Shaped] = &[
    (Op::BatchNorm, &[8, 64, 112, 112]),
    (Op::BatchNorm, &[8, 2048, 7, 7]),
    (Op::GroupNorm, &[2, 320, 64, 64]),
    (Op::GroupNorm, &[2, 1280, 16, 16]),
    (Op::InstanceNorm, &[1, 128, 180, 180]),
];

const TINY: &[Shaped] = &[
    // A single token of Llama 8B and of MiniLM.
    (Op::RmsNorm, &[1, 4096]),
    (Op::LayerNorm, &[1, 384]),
    (Op::LayerNorm, &[4, 16]),
    (Op::GroupNorm, &[1, 32, 4, 4]),
];

const ODD: &[Shaped] = &[
    // Rows that no vector width divides.
    (Op::LayerNorm, &[1021, 1021]),
    (Op::RmsNorm, &[65537, 3]),
    // One column, and one row.
    (Op::LayerNorm, &[65536, 1]),
    (Op::LayerNorm, &[1, 1 << 24]),
    (Op::BatchNorm, &[16, 3, 223, 223]),
    // Feature maps of Inception v3, and of Deformable DETR for an image of 800 x 1,066: their
    // segments have a tail.
    (Op::GroupNorm, &[16, 64, 73, 73]),
    (Op::GroupNorm, &[2, 256, 50, 67]),
];

/// Bytes of a tensor of the suite `rows`, and its lengths of rows: powers of two, and hidden sizes of
/// transformers that are none.
const TENSOR: usize = 256 << 20;
const ROWS: [usize; 16] = [
    512, 768, 1024, 1280, 2048, 3072, 4096, 5120, 7168, 8192, 12_288, 14_336, 16_384, 28_672,
    32_768, 65_536,
];

/// Rows of commit 338ef36 name this list `gpu.json`; that run ended after its first 15.
#[rustfmt::skip]
const GPU: &[Called] = &[
    (Op::RmsNorm, &[1, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[16384, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::LayerNorm, &[512, 768], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::LayerNorm, &[16384, 768], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::LayerNorm, &[4096, 16384], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::ChannelsLast, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[8, 640, 32, 32], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::InstanceNorm, &[8, 64, 128, 128], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::ChannelsLast, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::RmsNorm, &[4096, 8192], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::LayerNorm, &[512, 768], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::LayerNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::LayerNorm, &[16384, 768], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::InstanceNorm, &[8, 64, 128, 128], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::BatchNorm, &[64, 64, 112, 112], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::BatchNorm, &[64, 2048, 7, 7], Layout::ChannelsLast, DType::F16, Pass::Full),
];

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
}

impl Op {
    /// Number of parameters: scale, and bias if it has one.
    fn parameter_tensors(self) -> usize {
        match self {
            Self::RmsNorm => 1,
            Self::LayerNorm | Self::BatchNorm | Self::GroupNorm | Self::InstanceNorm => 2,
        }
    }
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
        let least = match self.op {
            Op::LayerNorm | Op::RmsNorm => 1,
            Op::BatchNorm | Op::GroupNorm => 2,
            Op::InstanceNorm => 3,
        };
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
            self.op != Op::GroupNorm || self.shape[1].is_multiple_of(self.groups()),
            "{} channels do not divide into {} groups",
            self.shape[1],
            self.groups(),
        );
        Ok(())
    }

    /// Number of elements of the input.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
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
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.shape[self.shape.len() - 1],
            Op::BatchNorm => self.shape[0] * self.positions(),
            Op::GroupNorm => self.shape[1] / self.groups() * self.positions(),
            Op::InstanceNorm => self.positions(),
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
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.row(),
            Op::BatchNorm | Op::GroupNorm | Op::InstanceNorm => self.shape[1],
        }
    }

    /// Which element of scale and bias belongs to element `column` of `row`.
    pub fn parameter(&self, row: usize, column: usize) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => column,
            Op::BatchNorm | Op::GroupNorm | Op::InstanceNorm => {
                self.element(row, column) / self.positions() % self.shape[1]
            }
        }
    }

    /// True if the statistics are provided: running ones, of mean 0 and variance 1.
    pub fn is_inference(&self) -> bool {
        self.op == Op::BatchNorm && self.pass == Pass::Forward
    }

    /// The least traffic that the pass can do, in bytes: every tensor it needs, once.
    pub fn bytes(&self) -> usize {
        let (tensors, parameters) = match self.pass {
            // Input in, output out; scale and bias in.
            Pass::Forward => (2, self.op.parameter_tensors()),
            // Input and incoming gradient in, gradient of the input out; scale in, the gradients of
            // both out.
            Pass::Backward => (3, 1 + self.op.parameter_tensors()),
            Pass::Full => (5, 1 + 2 * self.op.parameter_tensors()),
        };
        (tensors * self.elements() + parameters * self.parameters()) * self.dtype.size()
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
        let mut printed = problem(&(Op::LayerNorm, &[8, 64]), DType::F32, Pass::Forward);
        assert_eq!(printed.to_string(), "layer_norm 8x64 f32 forward");
        printed.layout = Layout::ChannelsLast;
        assert_eq!(printed.tensor(), "8x64 channels_last");
    }

    #[test]
    fn every_catalogued_problem_is_valid() {
        for name in Suite::VARIANTS {
            for problem in name.parse::<Suite>().unwrap().problems() {
                problem.validate().unwrap();
            }
        }
    }

    #[test]
    fn the_full_suite_holds_each_problem_once() {
        let full = Suite::Full.problems();
        let suites = Suite::VARIANTS.iter().map(|name| name.parse().unwrap());
        let is_part = |suite: &Suite| !matches!(suite, Suite::Gpu | Suite::Rows);
        for suite in suites.filter(is_part) {
            for problem in suite.problems() {
                let times = full.iter().filter(|&other| *other == problem).count();
                assert_eq!(times, 1, "{problem} of {suite}");
            }
        }
    }

    #[test]
    fn a_channel_keeps_its_parameter_in_every_sample() {
        for op in [Op::InstanceNorm, Op::BatchNorm, Op::GroupNorm] {
            let problem = problem(&(op, &[2, 3, 4, 5]), DType::F32, Pass::Full);
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
        let contiguous = problem(&(Op::BatchNorm, &[2, 3, 2, 1]), DType::F32, Pass::Forward);
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
    fn inputs_are_repeatable_and_spread() {
        let problem = &Suite::Quick.problems()[1];
        let input = problem.host_data().input;
        assert_eq!(input, problem.host_data().input);
        let mean = input.iter().sum::<f32>() / input.len() as f32;
        assert!((mean - 0.5).abs() < 0.01, "mean {mean}");
    }
}
