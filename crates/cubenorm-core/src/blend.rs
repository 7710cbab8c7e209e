use serde::{Deserialize, Serialize};

use crate::{DType, Epsilon, NormError, TensorDesc};

/// An elementwise step over a small tensor, beside a normalization:
///
/// ```text
/// output = previous * momentum + input * (1 - momentum)
/// ```
///
/// and without a previous value `output = input`, where the input may be replaced by
/// `1 / sqrt(input + epsilon)` first. It turns the pairs of statistics that a
/// normalization writes into tensors of their own, moves running averages, and converts parameters
/// to another dtype.
///
/// All tensors have one shape, of rank 1 to [`MAX_RANK`](crate::MAX_RANK); their strides and dtypes are their own.
/// Computed in f64 where the input is f64, else in f32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlendDesc {
    /// What is blended in.
    pub input: TensorDesc,
    /// Elements before the input's first: 0 for the means of a tensor of pairs, 1 for what comes
    /// with each mean.
    pub input_offset: usize,
    /// What it is blended with.
    pub previous: Option<TensorDesc>,
    /// The share of `previous`, from 0 to 1.
    pub momentum: f64,
    /// The result.
    pub output: TensorDesc,
    /// Elements before the output's first.
    pub output_offset: usize,
    /// Whether the input is a variance whose reciprocal deviation is taken first, and what is added
    /// to it for that.
    pub deviation: Option<Epsilon>,
}

impl BlendDesc {
    /// A copy, converted to the output's dtype.
    pub fn copy(input: TensorDesc, output: TensorDesc) -> Self {
        Self {
            input,
            input_offset: 0,
            previous: None,
            momentum: 0.0,
            output,
            output_offset: 0,
            deviation: None,
        }
    }

    /// The dtype that it is computed in: no tensor of it loses digits.
    pub fn accumulation(&self) -> DType {
        let others = [self.previous.as_ref(), Some(&self.output)];
        let others = others.into_iter().flatten();
        match others.map(|tensor| tensor.dtype).any(|it| it == DType::F64) {
            true => DType::F64,
            false => self.input.dtype.accumulation(),
        }
    }

    /// Checks the description.
    ///
    /// # Errors
    ///
    /// A [`NormError`] that names the tensor, what was expected and what came.
    pub fn validate(&self) -> Result<(), NormError> {
        self.input.validate("input")?;
        let shape = self.input.shape();
        let others = [
            ("previous", self.previous.as_ref()),
            ("output", Some(&self.output)),
        ];
        for (tensor, desc) in others {
            let Some(desc) = desc else { continue };
            desc.validate(tensor)?;
            if desc.shape() != shape {
                return Err(NormError::OutputShape {
                    tensor,
                    shape: desc.shape().to_vec(),
                    input: shape.to_vec(),
                });
            }
        }
        if self.output.layout.overlaps() {
            return Err(NormError::OutputOverlaps {
                tensor: "output",
                shape: shape.to_vec(),
                strides: self.output.layout.strides.clone(),
            });
        }
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(NormError::Momentum {
                momentum: self.momentum,
            });
        }
        Ok(())
    }
}
