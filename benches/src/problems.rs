//! The catalogue: which operator on which shapes, and the data they run on.

use std::{fmt, str::FromStr};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// The epsilon of every problem, the default of `burn::nn`'s norms.
pub const EPSILON: f64 = 1e-5;

/// The operator under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Mean and variance over the last axis; scale and bias of that axis.
    LayerNorm,
    /// Mean square over the last axis; scale of that axis.
    RmsNorm,
    /// Mean and variance over all axes but the first two; scale and bias per channel, axis 1.
    InstanceNorm,
}

/// The type of every tensor of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// IEEE single precision.
    F32,
}

/// Which part of a training step is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// The operator alone, without autodiff.
    Forward,
    /// The gradients of input and parameters; the forward has already run.
    Backward,
    /// Forward and backward together.
    Full,
}

/// One line of the report: an operator, a shape, a type and a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The operator.
    pub op: Op,
    /// The shape of the input.
    pub shape: Vec<usize>,
    /// The type of all tensors.
    pub dtype: DType,
    /// What is timed.
    pub pass: Pass,
}

/// A named list of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// The shapes that the project's speed targets name; minutes on a software device.
    Quick,
    /// `Quick`, the hidden sizes of common transformers and the feature maps of common networks.
    Full,
}

impl Suite {
    /// The problems of this suite, forward pass only.
    pub fn problems(self) -> Vec<Problem> {
        let forward = |(op, shape): &(Op, &[usize])| Problem {
            op: *op,
            shape: shape.to_vec(),
            dtype: DType::F32,
            pass: Pass::Forward,
        };
        let more = match self {
            Suite::Quick => [].iter(),
            Suite::Full => FULL.iter(),
        };
        QUICK.iter().chain(more).map(forward).collect()
    }
}

impl FromStr for Suite {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "quick" => Suite::Quick,
            "full" => Suite::Full,
            _ => bail!("no suite is called `{name}`; there are `quick` and `full`"),
        })
    }
}

/// A row that fits a cube, many short rows, few long ones; and a feature map.
const QUICK: &[(Op, &[usize])] = &[
    (Op::LayerNorm, &[2048, 4096]),
    (Op::LayerNorm, &[32768, 256]),
    (Op::LayerNorm, &[64, 65536]),
    (Op::RmsNorm, &[2048, 4096]),
    (Op::InstanceNorm, &[8, 64, 128, 128]),
];

const FULL: &[(Op, &[usize])] = &[
    // MiniLM and BERT base, 32 sentences of 128 tokens.
    (Op::LayerNorm, &[4096, 384]),
    (Op::LayerNorm, &[4096, 768]),
    // ViT-B/16, 32 pictures.
    (Op::LayerNorm, &[6304, 768]),
    // A single token of Llama 8B, and its prompt.
    (Op::RmsNorm, &[1, 4096]),
    (Op::RmsNorm, &[512, 8192]),
    // Rows that no vector width divides.
    (Op::LayerNorm, &[1021, 1021]),
    // A style-transfer network's first and last feature maps.
    (Op::InstanceNorm, &[1, 32, 720, 720]),
    (Op::InstanceNorm, &[1, 128, 180, 180]),
];

/// What a problem runs on, on the host; the same for every contender.
pub struct HostData {
    /// Roughly a mean of 0.5 and a variance of 1.
    pub input: Vec<f32>,
    /// Near one, different in every element.
    pub gamma: Vec<f32>,
    /// Near zero, different in every element.
    pub beta: Vec<f32>,
}

impl Problem {
    /// Refuses a shape that the operator cannot have.
    pub fn validate(&self) -> Result<()> {
        let least = match self.op {
            Op::LayerNorm | Op::RmsNorm => 1,
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
        Ok(())
    }

    /// How many elements the input has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many neighbouring elements share their statistics.
    pub fn row(&self) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.shape[self.shape.len() - 1],
            Op::InstanceNorm => self.shape[2..].iter().product(),
        }
    }

    /// How many elements scale and bias have.
    pub fn parameters(&self) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => self.row(),
            Op::InstanceNorm => self.shape[1],
        }
    }

    /// Which element of scale and bias belongs to element `column` of `row`.
    pub fn parameter(&self, row: usize, column: usize) -> usize {
        match self.op {
            Op::LayerNorm | Op::RmsNorm => column,
            Op::InstanceNorm => row % self.shape[1],
        }
    }

    /// The least traffic that the pass can do, in bytes: every large tensor it needs, once.
    pub fn bytes(&self) -> usize {
        let tensors = match self.pass {
            // Input in, output out.
            Pass::Forward => 2,
            // Input and incoming gradient in, gradient of the input out.
            Pass::Backward => 3,
            Pass::Full => 5,
        };
        tensors * self.elements() * size_of::<f32>()
    }

    /// Input and parameters, the same in every process.
    pub fn host_data(&self) -> HostData {
        let mut noise = Noise::new();
        let mut draw = |count, center, spread| {
            (0..count)
                .map(|_| center + spread * noise.next())
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
        write!(f, "{} {:?}", self.op, self.shape)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::LayerNorm => "layer_norm",
            Op::RmsNorm => "rms_norm",
            Op::InstanceNorm => "instance_norm",
        })
    }
}

/// Xorshift: the same numbers in every process, on every machine.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// The next number, uniform in -1 to 1.
    pub(crate) fn next(&mut self) -> f32 {
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
    fn every_catalogued_problem_is_one_its_operator_can_have() {
        for problem in Suite::Full.problems() {
            problem.validate().unwrap();
        }
    }

    #[test]
    fn a_channel_keeps_its_parameter_in_every_sample() {
        let problem = Problem {
            op: Op::InstanceNorm,
            shape: vec![2, 3, 4, 5],
            dtype: DType::F32,
            pass: Pass::Forward,
        };
        assert_eq!((problem.row(), problem.parameters()), (20, 3));
        assert_eq!(problem.parameter(1, 7), problem.parameter(4, 0));
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
