use cubenorm_core::{Activation, Epsilon, Statistics};

use super::{FusedActivation, TensorDesc};
use crate::builder::{self, Builder, View};
use crate::{Normalize, OperatorError, Program};

/// Lowering of an operator. All tensors have to match its input tensor.
pub(super) struct Lowering<'a> {
    pub operator: &'static str,
    input: &'a TensorDesc,
    pub builder: Builder,
}

impl<'a> Lowering<'a> {
    /// Starts with the tensor to normalize, the first input.
    pub(super) fn new(
        operator: &'static str,
        input: &'a TensorDesc,
    ) -> Result<(Self, View), OperatorError> {
        let tensor = "InputTensor";
        let desc = input.lower(operator, tensor)?;
        let mut builder = Builder::default();
        let view = builder.input(tensor, 0, desc)?;
        let lowering = Self {
            operator,
            input,
            builder,
        };
        Ok((lowering, view))
    }

    /// Adds an input whose sizes are each 1 or the input's.
    pub(super) fn parameter(
        &mut self,
        tensor: &'static str,
        position: usize,
        desc: &TensorDesc,
    ) -> Result<View, OperatorError> {
        let lowered = self.goes_with_input(tensor, desc)?;
        let sizes = desc.sizes.iter().zip(&self.input.sizes);
        if sizes
            .into_iter()
            .any(|(&size, &of)| size != 1 && size != of)
        {
            let input = &self.input.sizes;
            return Err(self.sizes(
                tensor,
                desc,
                format!("each to be 1 or the InputTensor's, of {input:?}"),
            ));
        }
        self.builder.input(tensor, position, lowered)
    }

    /// Adds an input with the sizes of another tensor.
    pub(super) fn input_like(
        &mut self,
        tensor: &'static str,
        position: usize,
        desc: &TensorDesc,
        like: (&'static str, &TensorDesc),
    ) -> Result<View, OperatorError> {
        let lowered = self.has_sizes_of(tensor, desc, like)?;
        self.builder.input(tensor, position, lowered)
    }

    /// Adds an output with the sizes of another tensor.
    pub(super) fn output_like(
        &mut self,
        tensor: &'static str,
        position: usize,
        desc: &TensorDesc,
        like: (&'static str, &TensorDesc),
    ) -> Result<View, OperatorError> {
        let lowered = self.has_sizes_of(tensor, desc, like)?;
        if lowered.layout.overlaps() {
            return Err(OperatorError::Overlap {
                operator: self.operator,
                tensor,
                sizes: lowered.layout.shape,
                strides: lowered.layout.strides,
            });
        }
        self.builder.output(tensor, position, lowered)
    }

    /// Adds the first output, of the input's sizes.
    pub(super) fn output(&mut self, desc: &TensorDesc) -> Result<View, OperatorError> {
        self.output_like("OutputTensor", 0, desc, ("InputTensor", self.input))
    }

    pub(super) fn epsilon(&self, epsilon: f32) -> Result<Epsilon, OperatorError> {
        builder::epsilon(self.operator, "Epsilon", epsilon)
    }

    /// Checks that axes are in range, without duplicates.
    pub(super) fn axes(&self, axes: &[u32]) -> Result<Vec<usize>, OperatorError> {
        let rank = self.input.sizes.len();
        let refused = |expected: String| OperatorError::Attribute {
            operator: self.operator,
            attribute: "Axes",
            expected,
            actual: format!("{axes:?}"),
        };
        let mut lowered = Vec::with_capacity(axes.len());
        for &axis in axes {
            let axis = axis as usize;
            if axis >= rank {
                return Err(refused(format!("axes from 0 to {}", rank - 1)));
            }
            if lowered.contains(&axis) {
                return Err(refused("no axis more than once".into()));
            }
            lowered.push(axis);
        }
        Ok(lowered)
    }

    fn has_sizes_of(
        &self,
        tensor: &'static str,
        desc: &TensorDesc,
        (name, like): (&'static str, &TensorDesc),
    ) -> Result<cubenorm_core::TensorDesc, OperatorError> {
        let lowered = self.goes_with_input(tensor, desc)?;
        if desc.sizes != like.sizes {
            return Err(self.sizes(tensor, desc, format!("the {name}'s, {:?}", like.sizes)));
        }
        Ok(lowered)
    }

    fn goes_with_input(
        &self,
        tensor: &'static str,
        desc: &TensorDesc,
    ) -> Result<cubenorm_core::TensorDesc, OperatorError> {
        let lowered = desc.lower(self.operator, tensor)?;
        if desc.data_type != self.input.data_type {
            return Err(OperatorError::DataType {
                operator: self.operator,
                tensor,
                expected: format!("{}, the InputTensor's", self.input.data_type),
                actual: desc.data_type.to_string(),
            });
        }
        if desc.sizes.len() != self.input.sizes.len() {
            return Err(OperatorError::Rank {
                operator: self.operator,
                tensor,
                expected: format!("{}, the InputTensor's", self.input.sizes.len()),
                rank: desc.sizes.len(),
            });
        }
        Ok(lowered)
    }

    fn sizes(&self, tensor: &'static str, desc: &TensorDesc, expected: String) -> OperatorError {
        OperatorError::Sizes {
            operator: self.operator,
            tensor,
            expected,
            sizes: desc.shape(),
        }
    }
}

/// Lowers any version of the mean variance normalization.
pub(super) struct MeanVariance<'a> {
    pub operator: &'static str,
    pub input_tensor: &'a TensorDesc,
    pub scale_tensor: Option<&'a TensorDesc>,
    pub bias_tensor: Option<&'a TensorDesc>,
    pub output_tensor: &'a TensorDesc,
    pub axes: &'a [u32],
    pub statistics: Statistics,
    pub epsilon: f32,
    pub fused_activation: Option<FusedActivation>,
}

impl MeanVariance<'_> {
    pub(super) fn lower(self) -> Result<Program, OperatorError> {
        let (mut lowering, input) = Lowering::new(self.operator, self.input_tensor)?;
        let mut parameter = |tensor, position, desc: Option<&TensorDesc>| {
            desc.map(|desc| lowering.parameter(tensor, position, desc))
                .transpose()
        };
        let scale = parameter("ScaleTensor", 1, self.scale_tensor)?;
        let bias = parameter("BiasTensor", 2, self.bias_tensor)?;
        let output = lowering.output(self.output_tensor)?;
        let axes = lowering.axes(self.axes)?;
        let epsilon = lowering.epsilon(self.epsilon)?;
        let step = Normalize::new(&input, axes, self.statistics, epsilon, &output)
            .with_scale(scale.as_ref())
            .with_bias(bias.as_ref())
            .with_activation(activation(self.fused_activation));
        lowering.builder.normalize(step)?;
        Ok(lowering.builder.finish())
    }
}

/// Converts an activation; `None` is the identity.
pub(super) fn activation(fused: Option<FusedActivation>) -> Activation {
    fused.map_or(Activation::Identity, Activation::from)
}
