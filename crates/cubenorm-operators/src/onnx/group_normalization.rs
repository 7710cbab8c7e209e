use cubenorm_core::{DType, Layout, MAX_RANK, Statistics, TensorDesc};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use super::stash::{compute_dtype, stash_dtype};
use crate::builder::{View, epsilon, parameter_dtype};
use crate::{Normalize, OperatorError, Program};

pub(super) const OPERATOR: &str = "GroupNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("X", Presence::Required),
        ("scale", Presence::Required),
        ("bias", Presence::Required),
    ],
    outputs: &["Y"],
};

/// Version of GroupNormalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupNormalizationVersion {
    /// Opset 18, deprecated: scale and bias have one element for each group.
    V18,
    /// Opset 21: scale and bias have one element for each channel.
    V21,
}

/// GroupNormalization, since opset 18: the channels of each instance in groups, each by its own
/// mean and variance.
///
/// ```text
/// Y = scale * (X - mean) / sqrt(variance + epsilon) + bias
/// ```
///
/// Inputs `X` of shape `[N, C, D1, ..., Dn]`, `scale` and `bias` of shape `[C]` or, in version 18,
/// `[num_groups]`, all of one dtype; output `Y`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNormalization {
    /// Number of groups, a divisor of the number of channels.
    pub num_groups: i64,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Minimum precision of the computation: 1 for `f32`, 10 for `f16`, 11 for `f64`, 16 for
    /// `bf16`.
    /// Version 18 does not have it.
    pub stash_type: i64,
    /// Shape of scale and bias.
    pub version: GroupNormalizationVersion,
}

impl GroupNormalization {
    /// Latest version with epsilon 1e-5, computed in `f32`.
    pub fn new(num_groups: i64) -> Self {
        Self {
            num_groups,
            epsilon: DEFAULT_EPSILON,
            stash_type: 1,
            version: GroupNormalizationVersion::V21,
        }
    }

    pub(super) fn attributes(opset: i64) -> &'static [&'static str] {
        match opset {
            ..21 => &["num_groups", "epsilon"],
            _ => &["num_groups", "epsilon", "stash_type"],
        }
    }

    pub(super) fn from_attributes(
        opset: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            num_groups: attributes.required_int("num_groups")?,
            epsilon: attributes.float("epsilon", DEFAULT_EPSILON)?,
            stash_type: attributes.int("stash_type", 1)?,
            version: match opset {
                ..21 => GroupNormalizationVersion::V18,
                _ => GroupNormalizationVersion::V21,
            },
        })
    }

    /// Lowers to one normalization over `X` viewed as `[N, num_groups, C / num_groups, D1, ...,
    /// Dn]`.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the input has no channels or the groups do not divide them, if a
    /// parameter has another shape or dtype, if the stash type is unknown, if the last two of 8
    /// dimensions are not adjacent in memory, and by the rules of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let mut node = Node::new(&SIGNATURE, inputs, wanted)?;
        let x = node.required(0)?;
        let &[_, channels, ..] = x.shape() else {
            let expected = "2 to 8: instance, channel and any others".into();
            return Err(node.rank("X", expected, x.layout.rank()));
        };
        let groups = usize::try_from(self.num_groups).unwrap_or(0);
        if groups == 0 || channels % groups != 0 {
            let expected = format!("a divisor of the {channels} channels");
            return Err(node.attribute("num_groups", expected, self.num_groups));
        }
        let parameters = match self.version {
            GroupNormalizationVersion::V18 => groups,
            GroupNormalizationVersion::V21 => channels,
        };
        for position in [1, 2] {
            node.expect_dtype_of(position, 0)?;
            node.expect_shape(position, &[parameters])?;
        }
        let epsilon = epsilon(OPERATOR, "epsilon", self.epsilon)?;
        let stash = stash_dtype(OPERATOR, self.stash_type, &DType::ALL)?;

        let compute = compute_dtype(x.dtype, x.dtype, stash);
        let input = node.read(0)?;
        let input = node.builder.converted(input, compute)?;
        let grouped =
            grouped(&input.desc.layout, groups).ok_or_else(|| OperatorError::Strides {
                operator: OPERATOR,
                tensor: "X",
                expected: "the last two of 8 dimensions to follow one another".into(),
                strides: input.desc.layout.strides.clone(),
            })?;
        let input = input.with_layout(grouped);
        let (scale, bias) = (node.read(1)?, node.read(2)?);
        let common = parameter_dtype(compute, &[Some(&scale), Some(&bias)]);
        let rank = input.desc.layout.rank();
        let scale = by_group(&node.builder.converted(scale, common)?, groups, rank);
        let bias = by_group(&node.builder.converted(bias, common)?, groups, rank);

        let y = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        let output = match x.dtype == compute {
            true => y.clone(),
            false => {
                let wide = TensorDesc::contiguous(x.shape(), compute);
                node.builder.temporary("unrounded", wide)?
            }
        };
        let contiguous = Layout::contiguous(input.desc.shape());
        let axes: Vec<usize> = (2..rank).collect();
        let result = output.with_layout(contiguous);
        let step = Normalize::new(&input, axes, Statistics::MeanVariance, epsilon, &result)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias));
        node.builder.normalize(step)?;
        if output.slot != y.slot {
            node.builder.copy(&output, &y)?;
        }
        Ok(node.builder.finish())
    }
}

/// Views `[N, C, D1, ...]` as `[N, groups, C / groups, D1, ...]`. The last two dimensions are
/// merged if there are too many; `None` if they cannot be.
fn grouped(layout: &Layout, groups: usize) -> Option<Layout> {
    let Layout { shape, strides } = layout;
    let channels = shape[1] / groups;
    let mut shape = [&[shape[0], groups, channels], &shape[2..]].concat();
    let outer = strides[1].saturating_mul(channels.max(1));
    let mut strides = [&[strides[0], outer, strides[1]], &strides[2..]].concat();
    if shape.len() > MAX_RANK {
        let (last, stride) = (shape.pop()?, strides.pop()?);
        let (size, outer) = (shape.last_mut()?, strides.last_mut()?);
        let is_even = *size == 1 || last == 1 || *outer == stride.saturating_mul(last);
        // An empty tensor has no addresses.
        if !is_even && *size != 0 && last != 0 {
            return None;
        }
        if last != 1 {
            *outer = stride;
        }
        *size = size.saturating_mul(last);
    }
    Some(Layout { shape, strides })
}

/// Views a parameter of shape `[groups]` or `[channels]` along the groups, or both parts of the
/// channels.
fn by_group(view: &View, groups: usize, rank: usize) -> View {
    let (size, stride) = (view.desc.layout.shape[0], view.desc.layout.strides[0]);
    let each = size / groups;
    let mut shape = vec![1; rank];
    let mut strides = vec![1; rank];
    (shape[1], shape[2]) = (groups, each);
    (strides[1], strides[2]) = (stride.saturating_mul(each.max(1)), stride);
    view.with_layout(Layout { shape, strides })
}
