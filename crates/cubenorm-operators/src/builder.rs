use cubenorm_core::{
    Activation, DType, Epsilon, Layout, LerpDesc, NormDesc, ResidualPlace, Statistics, TensorDesc,
    WrittenStatistics,
};

use crate::{Gradient, Lerp, Normalize, OperatorError, Program, ProgramTensor, Role, Slot, Step};

/// View of a tensor in one step.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub slot: Slot,
    pub desc: TensorDesc,
}

impl View {
    /// Views the same buffer in another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        let desc = TensorDesc::new(layout, self.desc.dtype);
        Self {
            slot: self.slot,
            desc,
        }
    }
}

/// Views the first or second number of each pair of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Mean = 0,
    /// Variance or reciprocal deviation.
    Spread = 1,
}

/// Builder of a program. Every step is validated when it is added.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    tensors: Vec<ProgramTensor>,
    steps: Vec<Step>,
}

impl Builder {
    pub(crate) fn input(
        &mut self,
        name: &'static str,
        position: usize,
        desc: TensorDesc,
    ) -> Result<View, OperatorError> {
        self.tensor(name, Role::Input, position, desc)
    }

    pub(crate) fn output(
        &mut self,
        name: &'static str,
        position: usize,
        desc: TensorDesc,
    ) -> Result<View, OperatorError> {
        self.tensor(name, Role::Output, position, desc)
    }

    pub(crate) fn temporary(
        &mut self,
        name: &'static str,
        desc: TensorDesc,
    ) -> Result<View, OperatorError> {
        let others = self.tensors.iter();
        let position = others.filter(|t| t.role == Role::Temporary).count();
        self.tensor(name, Role::Temporary, position, desc)
    }

    fn tensor(
        &mut self,
        name: &'static str,
        role: Role,
        position: usize,
        desc: TensorDesc,
    ) -> Result<View, OperatorError> {
        // Unlimited buffers: only the description is validated.
        desc.fits(name, usize::MAX)?;
        let slot = Slot(self.tensors.len());
        self.tensors.push(ProgramTensor {
            name,
            role,
            position,
            desc: desc.clone(),
        });
        Ok(View { slot, desc })
    }

    pub(crate) fn normalize(&mut self, step: Normalize) -> Result<(), OperatorError> {
        step.desc.problem()?;
        self.steps.push(Step::Normalize(Box::new(step)));
        Ok(())
    }

    /// Adds a normalization that also writes two numbers for each row, into a temporary tensor of
    /// shape `[rows, 2]`.
    pub(crate) fn normalize_with_statistics(
        &mut self,
        mut step: Normalize,
        written: WrittenStatistics,
    ) -> Result<View, OperatorError> {
        step.desc.written_statistics = Some(written);
        let pairs = step.desc.statistics_desc();
        let rows = Layout::contiguous(&pairs.shape()[..pairs.shape().len() - 1]);
        // An overflow of the number of rows is refused as a tensor that is too large.
        let rows = rows.checked_elements().unwrap_or(usize::MAX);
        let pairs = TensorDesc::contiguous([rows, 2], pairs.dtype);
        let pairs = self.temporary("statistics", pairs)?;
        step.statistics = Some(pairs.slot);
        self.normalize(step)?;
        Ok(pairs)
    }

    /// Copies one number of each pair to its own tensor, in the order of the pairs. It is
    /// interpolated with a previous value, if there is one.
    pub(crate) fn unpair(
        &mut self,
        pairs: &View,
        half: Half,
        previous: Option<(&View, f32)>,
        output: &View,
    ) -> Result<(), OperatorError> {
        let Layout { shape, mut strides } = Layout::contiguous(output.desc.shape());
        for stride in &mut strides {
            *stride = stride.saturating_mul(2);
        }
        let input = TensorDesc::new(Layout::strided(shape, strides), pairs.desc.dtype);
        self.lerp(Lerp {
            desc: LerpDesc {
                input,
                input_offset: half as usize,
                previous: previous.map(|(view, _)| view.desc.clone()),
                momentum: previous.map_or(0.0, |(_, momentum)| f64::from(momentum)),
                output: output.desc.clone(),
                output_offset: 0,
                deviation: None,
            },
            input: pairs.slot,
            previous: previous.map(|(view, _)| view.slot),
            output: output.slot,
        })
    }

    /// Pairs provided means with the reciprocal deviations of provided variances, in a temporary
    /// tensor: the sizes that both broadcast to, and 2.
    pub(crate) fn pair(
        &mut self,
        mean: &View,
        variance: &View,
        epsilon: Epsilon,
    ) -> Result<View, OperatorError> {
        let sizes = mean.desc.shape().iter().zip(variance.desc.shape());
        let sizes: Vec<usize> = sizes.map(|(&mean, &variance)| mean.max(variance)).collect();
        let dtype = mean.desc.dtype.accumulation();
        let layout = Layout::contiguous(sizes.clone());
        let elements = layout.checked_elements().unwrap_or(usize::MAX);
        let pairs = self.temporary("statistics", TensorDesc::contiguous([elements, 2], dtype))?;
        let strides = layout.strides.iter().map(|stride| stride.saturating_mul(2));
        let half = Layout::strided(sizes.clone(), strides.collect::<Vec<_>>());
        let halves = [
            (mean, Half::Mean, None),
            (variance, Half::Spread, Some(epsilon)),
        ];
        for (view, which, deviation) in halves {
            let strides = (sizes.iter())
                .zip(view.desc.shape().iter().zip(&view.desc.layout.strides))
                .map(|(&size, (&own, &stride))| if own == size { stride } else { 0 });
            let repeated = Layout::strided(sizes.clone(), strides.collect::<Vec<_>>());
            self.lerp(Lerp {
                desc: LerpDesc {
                    output_offset: which as usize,
                    deviation,
                    ..LerpDesc::copy(
                        view.with_layout(repeated).desc,
                        TensorDesc::new(half.clone(), dtype),
                    )
                },
                input: view.slot,
                previous: None,
                output: pairs.slot,
            })?;
        }
        let mut shape = sizes;
        shape.push(2);
        Ok(pairs.with_layout(Layout::contiguous(shape)))
    }

    /// Adds a gradient. The gradients of scale and bias are copied from contiguous tensors if their
    /// own are not contiguous.
    pub(crate) fn gradient(
        &mut self,
        mut step: Gradient,
        [scale, bias]: [Option<&View>; 2],
    ) -> Result<(), OperatorError> {
        step.desc.validate()?;
        let mut copies = Vec::new();
        let places = [
            (scale, &mut step.scale_gradient),
            (bias, &mut step.bias_gradient),
        ];
        for (view, place) in places {
            let Some(view) = view else { continue };
            let contiguous = TensorDesc::contiguous(view.desc.shape(), view.desc.dtype);
            if contiguous != view.desc {
                let sums = self.temporary("sums", contiguous)?;
                *place = Some(sums.slot);
                copies.push((sums, view));
            }
        }
        self.steps.push(Step::Gradient(Box::new(step)));
        copies
            .iter()
            .try_for_each(|(sums, view)| self.copy(sums, view))
    }

    /// Copies a tensor, converting it to the other's dtype.
    pub(crate) fn copy(&mut self, input: &View, output: &View) -> Result<(), OperatorError> {
        self.lerp(Lerp {
            desc: LerpDesc::copy(input.desc.clone(), output.desc.clone()),
            input: input.slot,
            previous: None,
            output: output.slot,
        })
    }

    pub(crate) fn lerp(&mut self, step: Lerp) -> Result<(), OperatorError> {
        step.desc.validate()?;
        self.steps.push(Step::Lerp(Box::new(step)));
        Ok(())
    }

    /// Returns the view if it has the dtype, else a contiguous converted copy.
    pub(crate) fn converted(&mut self, view: View, dtype: DType) -> Result<View, OperatorError> {
        if view.desc.dtype == dtype {
            return Ok(view);
        }
        let copy = TensorDesc::contiguous(view.desc.shape(), dtype);
        let copy = self.temporary("converted", copy)?;
        self.copy(&view, &copy)?;
        Ok(copy)
    }

    pub(crate) fn finish(self) -> Program {
        Program {
            tensors: self.tensors,
            steps: self.steps,
        }
    }
}

impl Normalize {
    pub(crate) fn new(
        input: &View,
        axes: impl Into<Vec<usize>>,
        statistics: Statistics,
        epsilon: Epsilon,
        output: &View,
    ) -> Self {
        Self {
            desc: NormDesc::new(input.desc.clone(), axes, statistics)
                .with_epsilon(epsilon)
                .with_output(output.desc.clone()),
            input: input.slot,
            residual: None,
            scale: None,
            bias: None,
            mean: None,
            variance: None,
            output: output.slot,
            sum: None,
            statistics: None,
        }
    }

    /// Normalizes by provided means and variances.
    pub(crate) fn given(
        input: &View,
        mean: &View,
        variance: &View,
        epsilon: Epsilon,
        output: &View,
    ) -> Self {
        let statistics = Statistics::Provided {
            mean: mean.desc.clone(),
            variance: variance.desc.clone(),
        };
        Self {
            mean: Some(mean.slot),
            variance: Some(variance.slot),
            ..Self::new(input, [], statistics, epsilon, output)
        }
    }

    pub(crate) fn with_scale(mut self, scale: Option<&View>) -> Self {
        self.desc.scale = scale.map(|view| view.desc.clone());
        self.scale = scale.map(|view| view.slot);
        self
    }

    pub(crate) fn with_bias(mut self, bias: Option<&View>) -> Self {
        self.desc.bias = bias.map(|view| view.desc.clone());
        self.bias = bias.map(|view| view.slot);
        self
    }

    pub(crate) fn with_residual(mut self, residual: Option<&View>, place: ResidualPlace) -> Self {
        self.desc.residual = residual.map(|view| view.desc.clone());
        self.desc.residual_place = place;
        self.residual = residual.map(|view| view.slot);
        self
    }

    pub(crate) fn with_sum(mut self, sum: Option<&View>) -> Self {
        self.desc.writes_sum = sum.is_some();
        self.sum = sum.map(|view| view.slot);
        self
    }

    pub(crate) fn with_activation(mut self, activation: Activation) -> Self {
        self.desc.activation = activation;
        self
    }
}

/// Dtype of a normalization's parameters: their own if all share it and the normalization accepts
/// it, else the dtype of the computation.
pub(crate) fn parameter_dtype(input: DType, parameters: &[Option<&View>]) -> DType {
    let mut dtypes = parameters.iter().flatten().map(|view| view.desc.dtype);
    let first = dtypes.next().unwrap_or(input);
    let taken = first == input || first == input.accumulation();
    match taken && dtypes.all(|dtype| dtype == first) {
        true => first,
        false => input.accumulation(),
    }
}

/// An epsilon under the root.
pub(crate) fn epsilon(
    operator: &'static str,
    attribute: &'static str,
    epsilon: f32,
) -> Result<Epsilon, OperatorError> {
    if !epsilon.is_finite() || epsilon < 0.0 {
        return Err(OperatorError::Attribute {
            operator,
            attribute,
            expected: "a finite number that is not negative".into(),
            actual: epsilon.to_string(),
        });
    }
    Ok(Epsilon::InsideSqrt(f64::from(epsilon)))
}
