//! The network: convolutions down, five residual blocks, transposed convolutions up.
//!
//! Pictures are `[1, 3, height, width]`, channels R, G, B, values 0 to 255.

use anyhow::Result;
use burn::tensor::activation::tanh;
use burn::tensor::module::{conv_transpose2d, conv2d};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, PadMode};
use burn::tensor::{Device, Tensor};

use cubenorm_example_common::Norms;

use crate::norms::ChannelNorm;
use crate::weights::Weights;

/// Reflection padding of each side. Five residual blocks crop 2 positions per side at a quarter of
/// the resolution, which removes it again.
pub const PADDING: usize = 40;

/// Sides must be multiples of this, since the resolution is halved twice and doubled twice.
pub const GRANULARITY: usize = 4;

/// Offset of each channel: minus the usual means, in the order of the original network.
const MEAN_SHIFT: [f32; 3] = [-103.939, -116.779, -123.68];

/// Largest magnitude of the output before its final shift.
const OUTPUT_REACH: f32 = 150.0;

/// The style-transfer network.
#[derive(Debug, Clone)]
pub struct Candy {
    /// `[1, 3, 1, 1]`.
    mean_shift: Tensor<4>,
    /// Layers 0 to 2, with outputs of full, half and quarter resolution.
    down: [Layer; 3],
    blocks: [ResidualBlock; 5],
    /// Layers 13 and 14, with outputs of half and full resolution.
    up: [Layer; 2],
    /// Convolution 15, back to three channels.
    last: Convolution,
    /// `[1, 3, 1, 1]`.
    output_scale: Tensor<4>,
    /// `[1, 3, 1, 1]`.
    output_shift: Tensor<4>,
}

impl Candy {
    /// Builds the network from its weights.
    ///
    /// # Errors
    ///
    /// If a file of weights is missing or invalid.
    pub fn load(weights: &Weights, device: &Device) -> Result<Self> {
        let plain = |index, channels, kernel, stride, padding| {
            let conv = Convolution::plain(weights, index, channels, kernel, stride, padding)?;
            Layer::load(weights, index, conv, true)
        };
        let up = |index, channels| {
            Layer::load(
                weights,
                index,
                Convolution::up(weights, index, channels)?,
                true,
            )
        };
        Ok(Self {
            mean_shift: Tensor::<1>::from_floats(MEAN_SHIFT, device).reshape([1, 3, 1, 1]),
            down: [
                plain(0, [3, 16], 9, 1, 4)?,
                plain(1, [16, 32], 3, 2, 1)?,
                plain(2, [32, 64], 3, 2, 1)?,
            ],
            blocks: [
                ResidualBlock::load(weights, 3)?,
                ResidualBlock::load(weights, 5)?,
                ResidualBlock::load(weights, 7)?,
                ResidualBlock::load(weights, 9)?,
                ResidualBlock::load(weights, 11)?,
            ],
            up: [up(13, [64, 32])?, up(14, [32, 16])?],
            last: Convolution::plain(weights, 15, [16, 3], 9, 1, 4)?,
            output_scale: weights.tensor("Mul_B", [3, 1, 1])?.unsqueeze::<4>(),
            output_shift: weights.tensor("scale_B", [3, 1, 1])?.unsqueeze::<4>(),
        })
    }

    /// Applies the style to a picture. The output is not clamped.
    ///
    /// # Shapes
    ///
    /// - picture and output: `[1, 3, height, width]`, the sides multiples of [`GRANULARITY`] and
    ///   larger than [`PADDING`]
    pub fn forward(&self, picture: Tensor<4>, norms: Norms) -> Tensor<4> {
        self.forward_observed(picture, norms, |_, _| ())
    }

    /// Like [`forward`](Self::forward), but passes the outputs of the layers `norm2`, `add4` and
    /// `norm14` to `observe`.
    pub fn forward_observed(
        &self,
        picture: Tensor<4>,
        norms: Norms,
        mut observe: impl FnMut(&'static str, &Tensor<4>),
    ) -> Tensor<4> {
        let side = (PADDING, PADDING);
        let padded = (picture + self.mean_shift.clone()).pad([side, side], PadMode::Reflect);

        let small = self
            .down
            .iter()
            .fold(padded, |input, layer| layer.forward(input, norms));
        observe("norm2", &small);

        // A block adds its input to its result. The exception is the fourth block, which adds the
        // third block's result before the third addition. This looks like a mistake of the
        // original, but the weights were published for it.
        let mut sum = small;
        let mut normalized = sum.clone();
        for (index, block) in self.blocks.iter().enumerate() {
            let shortcut = if index == 3 { normalized } else { sum.clone() };
            normalized = block.forward(sum, norms);
            sum = normalized.clone() + crop(shortcut, ResidualBlock::MARGIN);
        }
        observe("add4", &sum);

        let large = self
            .up
            .iter()
            .fold(sum, |input, layer| layer.forward(input, norms));
        observe("norm14", &large);

        let output = tanh(self.last.forward(large)) * OUTPUT_REACH;
        output * self.output_scale.clone() + self.output_shift.clone()
    }
}

/// A convolution followed by its norm.
#[derive(Debug, Clone)]
struct Layer {
    convolution: Convolution,
    norm: ChannelNorm,
}

impl Layer {
    fn load(weights: &Weights, index: usize, convolution: Convolution, relu: bool) -> Result<Self> {
        let (scale, bias) = weights.normalization(index, convolution.channels())?;
        let norm = ChannelNorm::new(scale, bias, relu);
        Ok(Self { convolution, norm })
    }

    /// Input and output: `[1, channels, height, width]`.
    fn forward(&self, input: Tensor<4>, norms: Norms) -> Tensor<4> {
        self.norm.forward(self.convolution.forward(input), norms)
    }
}

/// Two layers without padding. Only the first has a ReLU. The network does the residual addition.
#[derive(Debug, Clone)]
struct ResidualBlock([Layer; 2]);

impl ResidualBlock {
    const CHANNELS: usize = 64;

    /// Rows and columns that a block crops from each side.
    const MARGIN: usize = 2;

    /// Loads layer `index` and the next one.
    fn load(weights: &Weights, index: usize) -> Result<Self> {
        let layer = |index, relu| {
            let channels = [Self::CHANNELS; 2];
            let convolution = Convolution::plain(weights, index, channels, 3, 1, 0)?;
            Layer::load(weights, index, convolution, relu)
        };
        Ok(Self([layer(index, true)?, layer(index + 1, false)?]))
    }

    /// Input: `[1, 64, height, width]`; output: `[1, 64, height - 4, width - 4]`.
    fn forward(&self, input: Tensor<4>, norms: Norms) -> Tensor<4> {
        self.0
            .iter()
            .fold(input, |input, layer| layer.forward(input, norms))
    }
}

/// A convolution, plain or transposed, with its filter and its bias.
#[derive(Debug, Clone)]
struct Convolution {
    filter: Tensor<4>,
    bias: Tensor<1>,
    geometry: Geometry,
}

#[derive(Debug, Clone)]
enum Geometry {
    /// The filter is `[output channels, input channels, rows, columns]`.
    Plain(ConvOptions<2>),
    /// The filter is `[input channels, output channels, rows, columns]`.
    Transposed(ConvTransposeOptions<2>),
}

impl Convolution {
    /// A convolution with a square kernel.
    fn plain(
        weights: &Weights,
        index: usize,
        [from, to]: [usize; 2],
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> Result<Self> {
        let (filter, bias) = weights.convolution(index, [to, from, kernel, kernel], to)?;
        let options = ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1);
        Ok(Self {
            filter,
            bias,
            geometry: Geometry::Plain(options),
        })
    }

    /// A transposed convolution that doubles the size.
    ///
    /// The original computes two more rows and columns, and crops the first and the last. Padding
    /// and output padding of one have the same effect.
    fn up(weights: &Weights, index: usize, [from, to]: [usize; 2]) -> Result<Self> {
        let (filter, bias) = weights.convolution(index, [from, to, 3, 3], to)?;
        let options = ConvTransposeOptions::new([2; 2], [1; 2], [1; 2], [1; 2], 1);
        Ok(Self {
            filter,
            bias,
            geometry: Geometry::Transposed(options),
        })
    }

    /// Number of output channels.
    fn channels(&self) -> usize {
        let [channels] = self.bias.dims();
        channels
    }

    /// Input and output: `[1, channels, height, width]`.
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let (filter, bias) = (self.filter.clone(), Some(self.bias.clone()));
        match &self.geometry {
            Geometry::Plain(options) => conv2d(input, filter, bias, options.clone()),
            Geometry::Transposed(options) => conv_transpose2d(input, filter, bias, options.clone()),
        }
    }
}

/// Crops `margin` rows and columns from each side.
///
/// # Shapes
///
/// - input: `[batch, channels, height, width]`
/// - output: `[batch, channels, height - 2 * margin, width - 2 * margin]`
fn crop(input: Tensor<4>, margin: usize) -> Tensor<4> {
    let [_, _, height, width] = input.dims();
    input
        .narrow(2, margin, height - 2 * margin)
        .narrow(3, margin, width - 2 * margin)
}
