use cubenorm_core::{Layout, Statistics, TensorDesc, WrittenStatistics};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use crate::builder::{Half, View, epsilon, parameter_dtype};
use crate::{Normalize, OperatorError, Program};

pub(super) const OPERATOR: &str = "BatchNormalization";

static SIGNATURE_7: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("X", Presence::Required),
        ("scale", Presence::Required),
        ("B", Presence::Required),
        ("mean", Presence::Required),
        ("var", Presence::Required),
    ],
    outputs: &["Y", "mean", "var", "saved_mean", "saved_var"],
};

static SIGNATURE_14: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("X", Presence::Required),
        ("scale", Presence::Required),
        ("B", Presence::Required),
        ("input_mean", Presence::Required),
        ("input_var", Presence::Required),
    ],
    outputs: &["Y", "running_mean", "running_var"],
};

const DEFAULT_MOMENTUM: f32 = 0.9;

/// Version of BatchNormalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BatchNormalizationVersion {
    /// Opset 7: with `spatial`; trains if more than `Y` is wanted.
    V7,
    /// Opset 9: trains if more than `Y` is wanted.
    V9,
    /// Opset 14: with `training_mode`; mean and variance may have another dtype than the others.
    V14,
    /// Opset 15: scale and bias may have another dtype than `X` as well.
    V15,
}

/// BatchNormalization, since opset 7: each channel by provided mean and variance or, in training,
/// by the batch's.
///
/// ```text
/// Y = scale * (X - mean) / sqrt(var + epsilon) + B
/// ```
///
/// and in training
///
/// ```text
/// running_mean = input_mean * momentum + mean * (1 - momentum)
/// running_var = input_var * momentum + var * (1 - momentum)
/// ```
///
/// with the population variance in both.
///
/// Inputs: `X` of shape `[N, C, D1, ..., Dn]`, or `[N]` for one channel; `scale`, `B`, mean and
/// variance of shape `[C]`. Outputs: `Y` of `X`'s dtype and, in training, optionally the moving
/// averages, of the dtype of the provided ones. Each version has its own names:
///
/// | version | mean and variance | moving averages | of the batch | trains |
/// | --- | --- | --- | --- | --- |
/// | 7, 9 | `mean`, `var` | `mean`, `var` | `saved_mean`, `saved_var` | if more than `Y` is wanted |
/// | 14, 15 | `input_mean`, `input_var` | `running_mean`, `running_var` | none | with `training_mode` |
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormalization {
    /// Value added to the variance.
    pub epsilon: f32,
    /// Weight of the previous averages in the moving averages, from 0 to 1.
    pub momentum: f32,
    /// True if the batch's statistics are used. Versions 7 and 9 do not have it.
    pub training_mode: bool,
    /// True if statistics are shared over the dimensions after the channel. Only version 7 has it.
    /// If false, the parameters have shape `[C, D1, ..., Dn]`.
    pub spatial: bool,
    /// Names, outputs and dtypes.
    pub version: BatchNormalizationVersion,
}

impl BatchNormalization {
    /// Inference, with epsilon 1e-5 and momentum 0.9.
    pub fn new(version: BatchNormalizationVersion) -> Self {
        Self {
            epsilon: DEFAULT_EPSILON,
            momentum: DEFAULT_MOMENTUM,
            training_mode: false,
            spatial: true,
            version,
        }
    }

    pub(super) fn attributes(opset: i64) -> &'static [&'static str] {
        match opset {
            ..9 => &["epsilon", "momentum", "spatial"],
            9..14 => &["epsilon", "momentum"],
            _ => &["epsilon", "momentum", "training_mode"],
        }
    }

    pub(super) fn from_attributes(
        opset: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            epsilon: attributes.float("epsilon", DEFAULT_EPSILON)?,
            momentum: attributes.float("momentum", DEFAULT_MOMENTUM)?,
            training_mode: attributes.flag("training_mode", false)?,
            spatial: attributes.flag("spatial", true)?,
            version: match opset {
                ..9 => BatchNormalizationVersion::V7,
                9..14 => BatchNormalizationVersion::V9,
                14 => BatchNormalizationVersion::V14,
                _ => BatchNormalizationVersion::V15,
            },
        })
    }

    /// True if further outputs select the batch's statistics, as in versions before 14.
    pub fn trains_by_outputs(&self) -> bool {
        self.version < BatchNormalizationVersion::V14
    }

    /// Lowers to one normalization. Parameters whose dtype is neither `X`'s nor the computation's
    /// are converted before it. In training, each wanted statistic is a copy or an interpolation.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if a parameter has another shape or dtype, if version 14 or 15 has
    /// further outputs without training, if the momentum is not from 0 to 1, and by the rules of
    /// [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let trains_by_outputs = self.trains_by_outputs();
        let signature = match trains_by_outputs {
            true => &SIGNATURE_7,
            false => &SIGNATURE_14,
        };
        let node = Node::new(signature, inputs, wanted)?;
        let channels = self.check(&node)?;
        let further = (1..signature.outputs.len()).find(|&position| node.wants(position));
        let trains = match (trains_by_outputs, further) {
            (true, further) => further.is_some(),
            (false, Some(position)) if !self.training_mode => {
                return Err(node.nothing_to_write(position, "training_mode is 0"));
            }
            (false, _) => self.training_mode,
        };
        match trains {
            true => self.train(node, &channels),
            false => self.infer(node, &channels),
        }
    }

    /// Checks shapes, dtypes and attributes, and returns the shape of the parameters.
    fn check(&self, node: &Node<'_>) -> Result<Vec<usize>, OperatorError> {
        let x = node.required(0)?;
        let channels = match *x.shape() {
            [_, _, ..] if self.is_per_element() => x.shape()[1..].to_vec(),
            [_, channels, ..] => vec![channels],
            _ => vec![1],
        };
        for position in 1..5 {
            node.expect_shape(position, &channels)?;
        }
        if self.version < BatchNormalizationVersion::V15 {
            node.expect_dtype_of(1, 0)?;
        }
        node.expect_dtype_of(2, 1)?;
        if self.version < BatchNormalizationVersion::V14 {
            node.expect_dtype_of(3, 0)?;
        }
        node.expect_dtype_of(4, 3)?;
        if !(0.0..=1.0).contains(&self.momentum) {
            let expected = "a number from 0 to 1".into();
            return Err(node.attribute("momentum", expected, self.momentum));
        }
        Ok(channels)
    }

    /// True if statistics are over the batch alone.
    fn is_per_element(&self) -> bool {
        self.version == BatchNormalizationVersion::V7 && !self.spatial
    }

    /// Reads two parameters of the channels' shape, in a dtype that the normalization accepts.
    fn pair(
        &self,
        node: &mut Node<'_>,
        positions: [usize; 2],
        channels: &[usize],
    ) -> Result<(View, View), OperatorError> {
        let x = node.required(0)?;
        let [first, second] = positions;
        let (first, second) = (node.read(first)?, node.read(second)?);
        let common = parameter_dtype(x.dtype, &[Some(&first), Some(&second)]);
        let mut seen = |view: View| {
            let view = node.builder.converted(view, common)?;
            Ok::<_, OperatorError>(by_channel(&view, channels, x.shape()))
        };
        Ok((seen(first)?, seen(second)?))
    }

    fn infer(&self, mut node: Node<'_>, channels: &[usize]) -> Result<Program, OperatorError> {
        let x = node.required(0)?;
        let epsilon = epsilon(OPERATOR, "epsilon", self.epsilon)?;
        let input = node.read(0)?;
        let (scale, bias) = self.pair(&mut node, [1, 2], channels)?;
        let (mean, variance) = self.pair(&mut node, [3, 4], channels)?;
        let output = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        let step = Normalize::given(&input, &mean, &variance, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias));
        node.builder.normalize(step)?;
        Ok(node.builder.finish())
    }

    fn train(&self, mut node: Node<'_>, channels: &[usize]) -> Result<Program, OperatorError> {
        let x = node.required(0)?;
        let epsilon = epsilon(OPERATOR, "epsilon", self.epsilon)?;
        // Statistics with their previous averages, then statistics to copy.
        let moved = [(1, Half::Mean, 3), (2, Half::Spread, 4)];
        let saved = [(3, Half::Mean), (4, Half::Spread)];
        for position in 1..5 {
            node.expect_statistics(position, channels)?;
        }
        let input = node.read(0)?;
        let (scale, bias) = self.pair(&mut node, [1, 2], channels)?;
        let output = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        let rank = x.layout.rank();
        let axes: Vec<usize> = match self.is_per_element() {
            true => vec![0],
            false => (0..rank).filter(|&axis| axis != 1).collect(),
        };
        let step = Normalize::new(&input, axes, Statistics::MeanVariance, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias));
        if (1..5).all(|position| !node.wants(position)) {
            node.builder.normalize(step)?;
            return Ok(node.builder.finish());
        }
        let written = WrittenStatistics::MeanVariance;
        let pairs = node.builder.normalize_with_statistics(step, written)?;
        for (position, half, given) in moved {
            if !node.wants(position) {
                continue;
            }
            let previous = node.read(given)?;
            let output = TensorDesc::contiguous(channels, previous.desc.dtype);
            let output = node.write(position, output)?;
            let previous = Some((&previous, self.momentum));
            node.builder.unpair(&pairs, half, previous, &output)?;
        }
        for (position, half) in saved {
            let output = TensorDesc::contiguous(channels, x.dtype);
            if let Some(output) = node.write_wanted(position, output)? {
                node.builder.unpair(&pairs, half, None, &output)?;
            }
        }
        Ok(node.builder.finish())
    }
}

/// Views a parameter of the channels' shape along the input's dimensions.
fn by_channel(view: &View, channels: &[usize], shape: &[usize]) -> View {
    let first = usize::from(shape.len() > 1);
    let mut sizes = vec![1; shape.len()];
    let mut strides = vec![1; shape.len()];
    sizes[first..][..channels.len()].copy_from_slice(channels);
    strides[first..][..channels.len()].copy_from_slice(&view.desc.layout.strides);
    view.with_layout(Layout::strided(sizes, strides))
}
