use serde::{Deserialize, Serialize};

use crate::desc::Epsilon;
use crate::dtype::DType;
use crate::error::NormError;
use crate::layout::TensorDesc;

/// An exponential moving average over a small tensor, elementwise:
///
/// ```text
/// output = previous * momentum + input * (1 - momentum)
/// ```
///
/// Without a previous value it is `output = input`. The input may first be replaced by `1 /
/// sqrt(input + epsilon)`. It splits written pairs of statistics, updates running statistics, and
/// converts parameters to another dtype.
///
/// All tensors have one shape, of rank 1 to [`MAX_RANK`](crate::MAX_RANK); strides and dtypes may
/// differ. Computed in f64 if any tensor is f64, else in f32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LerpDesc {
    /// The new value.
    pub input: TensorDesc,
    /// Elements before the input's first one. In a tensor of pairs, 0 selects the means and 1 the
    /// other statistic.
    pub input_offset: usize,
    /// The old value; `None` copies the input.
    pub previous: Option<TensorDesc>,
    /// The weight of `previous`, from 0 to 1.
    pub momentum: f64,
    /// The result.
    pub output: TensorDesc,
    /// Elements before the output's first one.
    pub output_offset: usize,
    /// The epsilon if the input is a variance to be converted to a reciprocal deviation; `None`
    /// takes it as it is.
    pub deviation: Option<Epsilon>,
}

impl LerpDesc {
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

    /// The computation dtype: the widest that any tensor requires.
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
