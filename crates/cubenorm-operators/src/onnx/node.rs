use cubenorm_core::{Layout, MAX_RANK, TensorDesc};

use crate::OperatorError;
use crate::builder::{Builder, View};

/// Formal parameters of an operator.
pub(super) struct Signature {
    pub operator: &'static str,
    /// Names; optional ones may be absent.
    pub inputs: &'static [(&'static str, Presence)],
    /// Names; all but the first may be absent.
    pub outputs: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
}

/// Lowering of an operator: its inputs and its wanted outputs.
pub(super) struct Node<'a> {
    signature: &'static Signature,
    inputs: &'a [Option<TensorDesc>],
    wanted: &'a [bool],
    pub builder: Builder,
}

impl<'a> Node<'a> {
    pub(super) fn new(
        signature: &'static Signature,
        inputs: &'a [Option<TensorDesc>],
        wanted: &'a [bool],
    ) -> Result<Self, OperatorError> {
        let operator = signature.operator;
        let last = |any: Option<usize>| any.map_or(0, |position| position + 1);
        let given = last(inputs.iter().rposition(Option::is_some));
        let asked = last(wanted.iter().rposition(|&wanted| wanted));
        for (kind, actual, expected) in [
            ("inputs", given, signature.inputs.len()),
            ("outputs", asked, signature.outputs.len()),
        ] {
            if actual > expected {
                return Err(OperatorError::TooMany {
                    operator,
                    kind,
                    expected,
                    actual,
                });
            }
        }
        let node = Self {
            signature,
            inputs,
            wanted,
            builder: Builder::default(),
        };
        for (position, &(tensor, presence)) in signature.inputs.iter().enumerate() {
            match node.given(position) {
                None if presence == Presence::Required => {
                    return Err(OperatorError::MissingTensor { operator, tensor });
                }
                None => {}
                Some(desc) => node.check_rank(tensor, desc)?,
            }
        }
        if !node.wants(0) {
            return Err(OperatorError::NotWanted {
                operator,
                tensor: signature.outputs[0],
            });
        }
        Ok(node)
    }

    /// Checks for a rank of 1 to [`MAX_RANK`]. A scalar parameter is one dimension of size 1: see
    /// [`read`](Self::read).
    fn check_rank(&self, tensor: &'static str, desc: &TensorDesc) -> Result<(), OperatorError> {
        let rank = desc.layout.rank();
        let is_input = tensor == self.signature.inputs[0].0;
        let least = if is_input { 1 } else { 0 };
        if (least..=MAX_RANK).contains(&rank) {
            return Ok(());
        }
        Err(self.rank(tensor, format!("{least} to {MAX_RANK}"), rank))
    }

    pub(super) fn operator(&self) -> &'static str {
        self.signature.operator
    }

    /// Returns an optional input.
    pub(super) fn given(&self, position: usize) -> Option<&'a TensorDesc> {
        self.inputs.get(position)?.as_ref()
    }

    /// Returns a required input.
    pub(super) fn required(&self, position: usize) -> Result<&'a TensorDesc, OperatorError> {
        self.given(position)
            .ok_or_else(|| OperatorError::MissingTensor {
                operator: self.operator(),
                tensor: self.input_name(position),
            })
    }

    pub(super) fn wants(&self, position: usize) -> bool {
        self.wanted.get(position).copied().unwrap_or(false)
    }

    pub(super) fn input_name(&self, position: usize) -> &'static str {
        self.signature.inputs[position].0
    }

    pub(super) fn output_name(&self, position: usize) -> &'static str {
        self.signature.outputs[position]
    }

    /// Reads an input in a step. A scalar becomes one element.
    pub(super) fn read(&mut self, position: usize) -> Result<View, OperatorError> {
        let desc = self.required(position)?.clone();
        let desc = match desc.layout.shape.is_empty() {
            true if desc.layout.strides.is_empty() => TensorDesc::contiguous([1], desc.dtype),
            _ => desc,
        };
        self.builder
            .input(self.input_name(position), position, desc)
    }

    /// Reads an optional input in a step.
    pub(super) fn read_given(&mut self, position: usize) -> Result<Option<View>, OperatorError> {
        self.given(position)
            .map(|_| self.read(position))
            .transpose()
    }

    /// Writes a wanted output.
    pub(super) fn write(
        &mut self,
        position: usize,
        desc: TensorDesc,
    ) -> Result<View, OperatorError> {
        self.builder
            .output(self.output_name(position), position, desc)
    }

    /// Writes an output if it is wanted.
    pub(super) fn write_wanted(
        &mut self,
        position: usize,
        desc: TensorDesc,
    ) -> Result<Option<View>, OperatorError> {
        match self.wants(position) {
            true => self.write(position, desc).map(Some),
            false => Ok(None),
        }
    }

    /// Requires an input, if present, to have another's dtype.
    pub(super) fn expect_dtype_of(
        &self,
        position: usize,
        other: usize,
    ) -> Result<(), OperatorError> {
        let (Some(desc), Some(like)) = (self.given(position), self.given(other)) else {
            return Ok(());
        };
        if desc.dtype == like.dtype {
            return Ok(());
        }
        Err(OperatorError::DataType {
            operator: self.operator(),
            tensor: self.input_name(position),
            expected: format!("{}, that of {}", like.dtype, self.input_name(other)),
            actual: desc.dtype.to_string(),
        })
    }

    /// Requires an input, if present, to have a shape.
    pub(super) fn expect_shape(
        &self,
        position: usize,
        shape: &[usize],
    ) -> Result<(), OperatorError> {
        match self.given(position) {
            Some(desc) if desc.shape() != shape => {
                Err(self.sizes(position, desc, format!("{shape:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Requires an input, if present, to broadcast to the first one.
    pub(super) fn expect_broadcast(&self, position: usize) -> Result<(), OperatorError> {
        let Some(desc) = self.given(position) else {
            return Ok(());
        };
        let target = self.required(0)?.shape();
        let shape = desc.shape();
        let pairs = shape.iter().rev().zip(target.iter().rev());
        let fits = pairs
            .into_iter()
            .all(|(&size, &target)| size == 1 || size == target);
        if fits && shape.len() <= target.len() {
            return Ok(());
        }
        let name = self.input_name(0);
        let expected = format!(
            "each, aligned at the last, to be 1 or that of {name}, which has sizes {target:?}"
        );
        Err(self.sizes(position, desc, expected))
    }

    /// Refuses an output of statistics over no elements.
    pub(super) fn expect_statistics(
        &self,
        position: usize,
        shape: &[usize],
    ) -> Result<(), OperatorError> {
        let is_empty = self.required(0)?.shape().contains(&0);
        if self.wants(position) && is_empty && !shape.contains(&0) {
            return Err(self.nothing_to_write(position, "it would be of no elements"));
        }
        Ok(())
    }

    pub(super) fn nothing_to_write(&self, position: usize, reason: &'static str) -> OperatorError {
        OperatorError::NothingToWrite {
            operator: self.operator(),
            tensor: self.output_name(position),
            reason,
        }
    }

    pub(super) fn rank(
        &self,
        tensor: &'static str,
        expected: String,
        rank: usize,
    ) -> OperatorError {
        OperatorError::Rank {
            operator: self.operator(),
            tensor,
            expected,
            rank,
        }
    }

    pub(super) fn sizes(
        &self,
        position: usize,
        desc: &TensorDesc,
        expected: String,
    ) -> OperatorError {
        OperatorError::Sizes {
            operator: self.operator(),
            tensor: self.input_name(position),
            expected,
            sizes: desc.shape().to_vec(),
        }
    }

    pub(super) fn attribute(
        &self,
        attribute: &'static str,
        expected: String,
        actual: impl ToString,
    ) -> OperatorError {
        OperatorError::Attribute {
            operator: self.operator(),
            attribute,
            expected,
            actual: actual.to_string(),
        }
    }

    /// Resolves an axis from `-rank` to `rank - 1`; negative axes count from the last.
    pub(super) fn axis(&self, attribute: &'static str, axis: i64) -> Result<usize, OperatorError> {
        let rank = self.required(0)?.layout.rank() as i64;
        let counted = if axis < 0 {
            axis.saturating_add(rank)
        } else {
            axis
        };
        if (0..rank).contains(&counted) {
            return Ok(counted as usize);
        }
        Err(self.attribute(attribute, format!("{} to {}", -rank, rank - 1), axis))
    }
}

/// Views a parameter of one dimension along one of `rank` dimensions.
pub(super) fn along(view: &View, axis: usize, rank: usize) -> View {
    let mut shape = vec![1; rank];
    let mut strides = vec![1; rank];
    if let ([size], [stride]) = (
        view.desc.layout.shape.as_slice(),
        view.desc.layout.strides.as_slice(),
    ) {
        (shape[axis], strides[axis]) = (*size, *stride);
    }
    view.with_layout(Layout::strided(shape, strides))
}
