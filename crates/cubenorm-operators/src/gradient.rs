use cubenorm_core::{
    Activation, BackwardDesc, Layout, LerpDesc, NormDesc, ResidualPlace, Statistics, TensorDesc,
    WrittenStatistics,
};

use crate::builder::{Builder, View};
use crate::{Gradient, Lerp, Normalize, OperatorError, Program, ProgramTensor, Role, Slot, Step};

/// Name and position of a gradient.
type Wanted = (&'static str, usize);

const OF_INPUT: Wanted = ("dX", 0);
const OF_SCALE: Wanted = ("dScale", 1);
const OF_BIAS: Wanted = ("dBias", 2);

impl Program {
    /// Position at which [`gradient`](Self::gradient) reads the gradient of the forward's output 0.
    /// No operator has an input there.
    pub const OUTPUT_GRADIENT: usize = usize::MAX;

    /// Builds the backward pass of an operator that is one normalization, with conversions before
    /// and after it. From the gradient of output 0 it computes the gradients of input, scale and
    /// bias, as [`BackwardDesc`] writes them.
    ///
    /// | tensor | role | position | shape and dtype |
    /// | --- | --- | --- | --- |
    /// | dependencies of the normalization | input | the forward's | the forward's |
    /// | `dY` | input | [`OUTPUT_GRADIENT`](Self::OUTPUT_GRADIENT) | of output 0 |
    /// | `dX` | output | 0 | of the normalized input |
    /// | `dScale` | output | 1 | of the scale; absent without one |
    /// | `dBias` | output | 2 | of the bias; absent without one |
    ///
    /// `dY` and all outputs are contiguous. Statistics are recomputed as in the forward pass.
    /// Provided statistics are constants. Further outputs, such as moving averages, do not
    /// contribute.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoGradient`] if the program has several normalizations, adds a residual or
    /// is itself a backward pass, or if a step reorders the elements of a tensor.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{DType, TensorDesc};
    /// use cubenorm_operators::Program;
    /// use cubenorm_operators::onnx::RmsNormalization;
    ///
    /// let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
    /// let forward = RmsNormalization::default().lower(&[f32(&[2, 3]), f32(&[3])], &[true])?;
    /// let gradient = forward.gradient()?;
    /// let outputs: Vec<_> = gradient.outputs().map(|(_, t)| (t.name, t.desc.shape())).collect();
    /// assert_eq!(outputs, [("dX", &[2, 3][..]), ("dScale", &[3][..])]);
    /// assert!(gradient.input_at(Program::OUTPUT_GRADIENT).is_some());
    /// # Ok::<(), cubenorm_operators::OperatorError>(())
    /// ```
    pub fn gradient(&self) -> Result<Self, OperatorError> {
        WayBack::through(self)?.build()
    }
}

fn refused(reason: &'static str) -> OperatorError {
    OperatorError::NoGradient { reason }
}

/// Builder of a backward program.
struct WayBack<'a> {
    forward: &'a Program,
    before: &'a [Step],
    norm: &'a Normalize,
    after: &'a [Step],
    builder: Builder,
    /// Slot here of each tensor of the forward.
    slots: Vec<Option<Slot>>,
}

impl<'a> WayBack<'a> {
    fn through(forward: &'a Program) -> Result<Self, OperatorError> {
        let mut found = None;
        for (at, step) in forward.steps.iter().enumerate() {
            match step {
                Step::Normalize(norm) if found.is_none() => found = Some((at, norm)),
                Step::Normalize(_) => return Err(refused("it is more than one normalization")),
                Step::Gradient(_) => return Err(refused("it is a gradient itself")),
                Step::Lerp(_) => (),
            }
        }
        let (at, norm) = found.ok_or_else(|| refused("it does not normalize"))?;
        if norm.residual.is_some() {
            return Err(refused("it adds a residual"));
        }
        Ok(Self {
            forward,
            before: &forward.steps[..at],
            norm,
            after: &forward.steps[at + 1..],
            builder: Builder::default(),
            slots: vec![None; forward.tensors.len()],
        })
    }

    fn build(mut self) -> Result<Program, OperatorError> {
        let norm = self.norm;
        let desc = &norm.desc;
        let is_reduced = !matches!(
            desc.statistics,
            Statistics::None | Statistics::Provided { .. }
        );
        // The bias only matters for the slope of an activation and for the statistics.
        let reads_bias = is_reduced || desc.activation != Activation::Identity;
        let bias = norm.bias.filter(|_| reads_bias);
        self.keep([Some(norm.input), norm.scale, bias, norm.mean, norm.variance])?;

        let result = self.result()?.clone();
        let above = TensorDesc::contiguous(result.desc.shape(), result.desc.dtype);
        let above = (self.builder).input("dY", Program::OUTPUT_GRADIENT, above)?;
        let above = self.builder.converted(above, desc.input.dtype)?;
        let shape = desc.input.shape();
        let above = above.with_layout(Layout::contiguous(shape));

        let input = self.destination(OF_INPUT, norm.input, &desc.input)?;
        let scale = self.destination_of(OF_SCALE, norm.scale, desc.scale.as_ref())?;
        let bias = self.destination_of(OF_BIAS, norm.bias, desc.bias.as_ref())?;
        let saved = self.saved()?;
        let slot = |destination: &Option<Destination>| destination.as_ref().map(|d| d.written.slot);
        let step = Gradient {
            desc: BackwardDesc {
                norm: NormDesc {
                    residual_place: ResidualPlace::Input,
                    output: None,
                    writes_sum: false,
                    written_statistics: None,
                    ..desc.clone()
                },
                output_gradient: above.desc.clone(),
                saved: saved.as_ref().map(|view| view.desc.clone()),
                sum_gradient: None,
                gate_gradient: None,
                input_gradient: Some(TensorDesc::contiguous(shape, desc.input.dtype)),
                wants_scale: scale.is_some(),
                wants_bias: bias.is_some(),
            },
            input: self.kept(norm.input)?,
            output_gradient: above.slot,
            saved: saved.map(|view| view.slot),
            scale: norm.scale.map(|slot| self.kept(slot)).transpose()?,
            bias: match desc.activation {
                Activation::Identity => None,
                _ => norm.bias.map(|slot| self.kept(slot)).transpose()?,
            },
            input_gradient: Some(input.written.slot),
            scale_gradient: slot(&scale),
            bias_gradient: slot(&bias),
        };
        self.builder.gradient(step, [None, None])?;
        for destination in [Some(input), scale, bias].into_iter().flatten() {
            if let Some(output) = destination.rounded {
                self.builder.copy(&destination.written, &output)?;
            }
        }
        Ok(self.builder.finish())
    }

    /// Copies tensors from the forward, with the blends that compute them.
    fn keep(&mut self, wanted: [Option<Slot>; 5]) -> Result<(), OperatorError> {
        let mut is_kept = vec![false; self.forward.tensors.len()];
        for slot in wanted.into_iter().flatten() {
            is_kept[slot.0] = true;
        }
        let mut lerps: Vec<&Lerp> = Vec::new();
        for step in self.before.iter().rev() {
            let Step::Lerp(lerp) = step else { continue };
            if is_kept[lerp.output.0] {
                is_kept[lerp.input.0] = true;
                if let Some(previous) = lerp.previous {
                    is_kept[previous.0] = true;
                }
                lerps.push(lerp);
            }
        }
        for (index, tensor) in self.forward.tensors.iter().enumerate() {
            if !is_kept[index] {
                continue;
            }
            let (name, position) = (tensor.name, tensor.position);
            let desc = tensor.desc.clone();
            let view = match tensor.role {
                Role::Input => self.builder.input(name, position, desc)?,
                Role::Temporary => self.builder.temporary(name, desc)?,
                Role::Output => return Err(refused("it normalizes one of its outputs")),
            };
            self.slots[index] = Some(view.slot);
        }
        for lerp in lerps.into_iter().rev() {
            let step = Lerp {
                desc: lerp.desc.clone(),
                input: self.kept(lerp.input)?,
                previous: lerp.previous.map(|slot| self.kept(slot)).transpose()?,
                output: self.kept(lerp.output)?,
            };
            self.builder.lerp(step)?;
        }
        Ok(())
    }

    fn kept(&self, slot: Slot) -> Result<Slot, OperatorError> {
        let slot = self.slots.get(slot.0).copied().flatten();
        slot.ok_or_else(|| refused("a step reads what nothing has written"))
    }

    /// Finds output 0: the normalization writes it, or its result is converted to it.
    fn result(&self) -> Result<&'a ProgramTensor, OperatorError> {
        let written = self.forward.tensor(self.norm.output);
        let seen = self.norm.desc.output.as_ref();
        if seen.is_some_and(|seen| !same_order(&seen.layout, &written.desc.layout)) {
            return Err(other_order());
        }
        let is_result =
            |tensor: &ProgramTensor| tensor.role == Role::Output && tensor.position == 0;
        if is_result(written) {
            return Ok(written);
        }
        let mut copies = self.after.iter().filter_map(|step| match step {
            Step::Lerp(lerp) if lerp.input == self.norm.output => {
                let output = self.forward.tensor(lerp.output);
                is_conversion(lerp, written, output).then_some(output)
            }
            _ => None,
        });
        let found = copies.find(|tensor| is_result(tensor));
        found.ok_or_else(|| refused("output 0 is not what the normalization gives"))
    }

    /// Finds the input, possibly converted, that a step views as `desc`.
    fn source(&self, slot: Slot, desc: &TensorDesc) -> Result<&'a ProgramTensor, OperatorError> {
        let tensor = self.forward.tensor(slot);
        if !same_order(&desc.layout, &tensor.desc.layout) {
            return Err(other_order());
        }
        if tensor.role == Role::Input {
            return Ok(tensor);
        }
        let mut writers = self.before.iter().filter_map(|step| match step {
            Step::Lerp(lerp) if lerp.output == slot => Some(lerp),
            _ => None,
        });
        if let (Some(lerp), None) = (writers.next(), writers.next()) {
            let source = self.forward.tensor(lerp.input);
            if source.role == Role::Input && is_conversion(lerp, source, tensor) {
                return Ok(source);
            }
        }
        Err(refused(
            "what it normalizes by is more than a converted input",
        ))
    }

    /// Adds an output for the gradient of the tensor that a step views as `desc`.
    fn destination(
        &mut self,
        (name, position): Wanted,
        slot: Slot,
        desc: &TensorDesc,
    ) -> Result<Destination, OperatorError> {
        let source = &self.source(slot, desc)?.desc;
        let output = TensorDesc::contiguous(source.shape(), source.dtype);
        let output = self.builder.output(name, position, output)?;
        if source.dtype == desc.dtype {
            return Ok(Destination {
                written: output,
                rounded: None,
            });
        }
        let unrounded = TensorDesc::contiguous(source.shape(), desc.dtype);
        Ok(Destination {
            written: self.builder.temporary("unrounded", unrounded)?,
            rounded: Some(output),
        })
    }

    fn destination_of(
        &mut self,
        wanted: Wanted,
        slot: Option<Slot>,
        desc: Option<&TensorDesc>,
    ) -> Result<Option<Destination>, OperatorError> {
        let parameter = slot.zip(desc);
        parameter
            .map(|(slot, desc)| self.destination(wanted, slot, desc))
            .transpose()
    }

    /// Adds pairs of mean and reciprocal deviation: recomputed, or made of provided ones.
    fn saved(&mut self) -> Result<Option<View>, OperatorError> {
        let norm = self.norm;
        let desc = &norm.desc;
        let (mean, variance) = match &desc.statistics {
            Statistics::None => return Ok(None),
            Statistics::Provided { mean, variance } => (mean, variance),
            _ => return self.normalized().map(Some),
        };
        let view = |slot: Option<Slot>, desc: &TensorDesc| {
            let slot = slot.ok_or_else(|| refused("given statistics are not given"))?;
            Ok::<_, OperatorError>(View {
                slot: self.kept(slot)?,
                desc: desc.clone(),
            })
        };
        let (mean, variance) = (view(norm.mean, mean)?, view(norm.variance, variance)?);
        let pairs = self.builder.pair(&mean, &variance, desc.epsilon)?;
        Ok(Some(pairs))
    }

    /// Repeats the forward's normalization for its statistics.
    fn normalized(&mut self) -> Result<View, OperatorError> {
        let norm = self.norm;
        let desc = &norm.desc;
        let output = TensorDesc::contiguous(desc.input.shape(), desc.input.dtype);
        let output = self.builder.temporary("Y", output)?;
        let step = Normalize {
            desc: NormDesc {
                output: Some(output.desc),
                writes_sum: false,
                ..desc.clone()
            },
            input: self.kept(norm.input)?,
            residual: None,
            scale: norm.scale.map(|slot| self.kept(slot)).transpose()?,
            bias: norm.bias.map(|slot| self.kept(slot)).transpose()?,
            mean: None,
            variance: None,
            output: output.slot,
            sum: None,
            statistics: None,
        };
        let written = WrittenStatistics::MeanRstd;
        let pairs = self.builder.normalize_with_statistics(step, written)?;
        Ok(pairs.with_layout(desc.statistics_desc().layout))
    }
}

/// Destination of a gradient.
struct Destination {
    written: View,
    /// Output that it is converted to, if its dtype differs.
    rounded: Option<View>,
}

fn other_order() -> OperatorError {
    refused("a step sees a tensor in another order than its own")
}

/// True if a blend copies all of a tensor to all of another.
fn is_conversion(lerp: &Lerp, from: &ProgramTensor, to: &ProgramTensor) -> bool {
    lerp.desc == LerpDesc::copy(from.desc.clone(), to.desc.clone())
}

/// True if two layouts have the same addresses in the same row-major order, for any shapes.
fn same_order(one: &Layout, other: &Layout) -> bool {
    let is_empty = |layout: &Layout| layout.shape.contains(&0);
    match (is_empty(one), is_empty(other)) {
        (false, false) => coalesced(one) == coalesced(other),
        (one, other) => one == other,
    }
}

/// Sizes and strides of a layout, with dimensions merged if possible.
fn coalesced(layout: &Layout) -> Vec<(usize, usize)> {
    let mut dims: Vec<(usize, usize)> = Vec::new();
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        match dims.last_mut() {
            _ if size == 1 => (),
            Some((outer, step)) if *step == stride.saturating_mul(size) => {
                *outer = outer.saturating_mul(size);
                *step = stride;
            }
            _ => dims.push((size, stride)),
        }
    }
    dims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_keep_the_order_and_permutations_do_not() {
        let layout = Layout::strided([4, 6], [12, 2]);
        assert!(same_order(
            &layout,
            &Layout::strided([4, 1, 2, 3], [12, 7, 6, 2])
        ));
        assert!(same_order(&layout, &Layout::strided([24], [2])));
        assert!(!same_order(&layout, &Layout::strided([6, 4], [2, 12])));
        assert!(!same_order(&layout, &Layout::contiguous([4, 6])));
        assert!(same_order(
            &Layout::contiguous([0, 3]),
            &Layout::contiguous([5, 0])
        ));
        assert!(!same_order(
            &Layout::contiguous([0, 3]),
            &Layout::contiguous([1])
        ));
    }
}
