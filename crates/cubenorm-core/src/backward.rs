use serde::{Deserialize, Serialize};

use crate::activation::{Activation, ActivationKind};
use crate::desc::{Epsilon, NormDesc, Offset, ResidualPlace, Rounding, Statistics};
use crate::dtype::DType;
use crate::error::NormError;
use crate::layout::{Layout, TensorDesc};
use crate::problem::{
    Access, RowsAndCols, Segments, kept_strides, memory_order, segment_to_cut_at,
};
use crate::statistics::StatisticsKind;

/// The backward pass of a normalization: the gradients of input, scale, bias and gate from the
/// output's gradient.
///
/// With `x` the input, `n` the elements of a row, `xhat = (x - mean) * rstd` and `dz =
/// output_gradient * activation'(xhat * scale + bias)`, where `scale` includes its offset:
///
/// ```text
/// scale_gradient = sum(dz * xhat)            over the dimensions that scale repeats along
/// bias_gradient  = sum(dz)                   over those that bias repeats along
/// g              = dz * scale
/// input_gradient = rstd * (g - sum(g) / n - xhat * sum(g * xhat) / n)     over rows
/// ```
///
/// The last line holds for [`Statistics::MeanVariance`](crate::Statistics::MeanVariance); other
/// statistics omit the terms that they do not reduce. Provided statistics are constants: they
/// receive no gradient.
///
/// # Gate
///
/// If the normalization has a gate `g` with the activation `a`, the input is the caller's, before the gate. With
/// [`ResidualPlace::OutputGate`](crate::ResidualPlace::OutputGate), `y = xhat * scale + bias` and
///
/// ```text
/// dz            = output_gradient * a(g)
/// gate_gradient = output_gradient * y * a'(g)
/// ```
///
/// With [`ResidualPlace::InputGate`](crate::ResidualPlace::InputGate), `x = input * a(g)`. With `ds` the last line for this `x`,
///
/// ```text
/// input_gradient = ds * a(g)
/// gate_gradient  = ds * input * a'(g)
/// ```
///
/// # Gradient of the sum
///
/// If the normalization wrote `sum = input + residual` too, the sum has a gradient of its own. With
/// [`sum_gradient`](Self::sum_gradient) it is added to the last line, in the accumulation dtype. The
/// result is the gradient of input and residual alike.
///
/// # Provided sums
///
/// If a row is divided over several devices, `n` and both sums of the last line belong to all of
/// them. `saved` then holds two more numbers per row: `sum(g) / n` and `sum(g * xhat) / n`. No sum
/// over a row is computed for the input's gradient. The gradients of scale and bias are those of
/// this device's elements. See [`provides_sums`](Self::provides_sums).
///
/// # Shapes and dtypes
///
/// The gradients of output, sum, input and gate have the input's shape. The output's gradient has the
/// output's dtype, the gate's the gate's, the other two have the input's. The gradients of scale and bias have their shapes
/// and dtypes.
#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize)]
pub struct BackwardDesc {
    /// The normalization. Its input is the normalized tensor: the sum if a residual is added first. A gate is its residual.
    /// Its own outputs are ignored.
    pub norm: NormDesc,
    /// The output's gradient.
    pub output_gradient: TensorDesc,
    /// Pairs of mean and reciprocal deviation, in the accumulation dtype: dimensions that broadcast
    /// to the input, then one of 2. [`NormDesc::statistics_desc`] describes the pairs that the
    /// forward pass writes. With provided sums the last dimension is 4.
    pub saved: Option<TensorDesc>,
    /// Added to the input's gradient, which has the same layout and dtype: the gradient of a sum that
    /// the normalization wrote.
    #[serde(default)]
    pub sum_gradient: Option<TensorDesc>,
    /// The input's gradient; `None` if it is not needed.
    pub input_gradient: Option<TensorDesc>,
    /// The gate's gradient, in the layout of the input's; `None` if it is not needed.
    #[serde(default)]
    pub gate_gradient: Option<TensorDesc>,
    /// True if the scale's gradient is computed.
    pub wants_scale: bool,
    /// True if the bias's gradient is computed.
    pub wants_bias: bool,
}

/// The gate of a [`BackwardProblem`].
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The gate.
    pub access: Access,
    /// Its dtype, and its gradient's.
    pub dtype: DType,
    /// True if the input is multiplied, false if the output is.
    pub is_of_input: bool,
    /// True if its gradient is computed. It has the strides of the input's gradient.
    pub wants_gradient: bool,
}

/// A backward pass in canonical form: `rows` groups of `cols` elements, with two sums over each.
#[derive(Debug, Clone, PartialEq)]
pub struct BackwardProblem {
    /// Number of groups, or of their segments.
    pub rows: usize,
    /// Elements of each group or segment.
    pub cols: usize,
    /// Consecutive rows whose sums, weighted by the scale, form the sums of one group: see
    /// [`NormProblem::segments`](crate::NormProblem::segments). 1 if each row is a group.
    pub segments: usize,
    /// Dtype of the input, of its gradient and of the sum's.
    pub dtype: DType,
    /// Dtype of the output's gradient.
    pub output_dtype: DType,
    /// Dtype of scale and bias.
    pub param_dtype: DType,
    /// The statistics that the normalization reduced.
    pub statistics: StatisticsKind,
    /// The constant that was added to the variance or deviation.
    pub epsilon: Epsilon,
    /// The activation: the gate's if there is one.
    pub activation: Activation,
    /// The gate.
    pub gate: Option<Gate>,
    /// The normalized tensor.
    pub input: Access,
    /// The output's gradient.
    pub output_gradient: Access,
    /// Pairs of mean and reciprocal deviation. Strides count elements.
    pub saved: Option<Access>,
    /// True if the means of the two sums over a row follow each pair: see
    /// [`BackwardDesc::provides_sums`].
    pub provides_sums: bool,
    /// The scale.
    pub scale: Option<Access>,
    /// Added to the scale; zero without one.
    pub offset: Offset,
    /// The bias.
    pub bias: Option<Access>,
    /// Added to the input's gradient. It has the same strides.
    pub sum_gradient: Option<Access>,
    /// The input's gradient; `None` if it is not needed.
    pub input_gradient: Option<Access>,
    /// The destination of the row's `sum(dz * xhat)` and `sum(dz)`, or `None`. They are pairs in
    /// the row-major order of the dimensions that are not reduced. Strides count pairs. If it has
    /// column dimensions, the sums are per segment of columns: the innermost dimension has stride
    /// 0.
    pub row_sums: Option<Access>,
    /// The column sums to compute over all rows.
    pub column_sums: ColumnSums,
    /// Columns between adjacent indices of each input dimension; 0 for row dimensions.
    pub column_strides: Vec<usize>,
    /// Rows between adjacent indices of each input dimension; 0 for column dimensions.
    pub row_strides: Vec<usize>,
}

/// Column sums: the gradients of scale and bias if these change along the row only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColumnSums {
    /// `sum(dz * xhat)`, the scale's gradient.
    pub products: bool,
    /// `sum(dz)`, the bias's gradient.
    pub gradients: bool,
}

impl ColumnSums {
    /// Number of sums per column.
    pub fn count(self) -> usize {
        usize::from(self.products) + usize::from(self.gradients)
    }

    /// True if there is at least one sum.
    pub fn any(self) -> bool {
        self.count() > 0
    }
}

/// The source of the gradients of scale and bias in a [`BackwardProblem`] over some axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamSums {
    /// Not this problem.
    Elsewhere,
    /// Row sums: each parameter is constant along a row.
    Rows,
    /// Sums of column segments: each parameter is constant along a segment, as in group norm per
    /// channel.
    Runs,
    /// Sums of channel segments: each parameter is constant along a segment of a row, as in
    /// channels-last group norm.
    Segments,
    /// Column sums: each parameter is the same in all rows.
    Columns,
}

const GATE_GRADIENT: &str = "gate gradient";

impl BackwardDesc {
    /// The gradients of input, scale, bias and gate of a normalization, laid out like the input
    /// without its gaps.
    pub fn new(norm: NormDesc) -> Self {
        let gradient = TensorDesc::new(norm.input.layout.kept(), norm.input.dtype);
        let gate = norm
            .residual
            .as_ref()
            .filter(|_| norm.residual_place.is_gate());
        let gate = gate.map(|gate| gate.dtype);
        Self {
            saved: Some(norm.statistics_desc()),
            gate_gradient: gate.map(|dtype| TensorDesc::new(gradient.layout.clone(), dtype)),
            output_gradient: gradient.clone(),
            sum_gradient: None,
            input_gradient: Some(gradient),
            wants_scale: norm.scale.is_some(),
            wants_bias: norm.bias.is_some(),
            norm,
        }
    }

    /// Adds the gradient of the sum. The input's gradient takes its layout.
    pub fn with_sum_gradient(mut self, gradient: TensorDesc) -> Self {
        self.input_gradient = Some(gradient.clone());
        self.sum_gradient = Some(gradient);
        self
    }

    /// Checks the description.
    ///
    /// # Errors
    ///
    /// A [`NormError`] that names the tensor, the expected value and the actual one.
    pub fn validate(&self) -> Result<(), NormError> {
        let norm = self.forward();
        norm.problem()?;
        if self.norm.rotation.is_some() {
            return Err(NormError::NothingToWrite {
                tensor: "gradients",
                reason: "a rotation has no backward kernel: rotate the output's gradient first",
            });
        }
        if self.norm.quantization.is_some() {
            return Err(NormError::NothingToWrite {
                tensor: "gradients",
                reason: "codes have none: differentiate the normalization without quantisation",
            });
        }
        if let Statistics::DynamicTanh { .. } = norm.statistics {
            return Err(NormError::NothingToWrite {
                tensor: "gradients",
                reason: "dynamic tanh has no backward kernel: compose it of other operations",
            });
        }
        let input = &norm.input;
        let shape = input.shape();
        let gate = self.gate();
        let like_input = [
            ("output gradient", Some(&self.output_gradient)),
            ("sum gradient", self.sum_gradient.as_ref()),
            ("input gradient", self.input_gradient.as_ref()),
            (GATE_GRADIENT, self.gate_gradient.as_ref()),
        ];
        for (tensor, desc) in like_input {
            let Some(desc) = desc else { continue };
            desc.validate(tensor)?;
            let of_gate = gate.filter(|_| tensor == GATE_GRADIENT);
            let of_same = of_gate.unwrap_or(input).dtype;
            let is_output = tensor == "output gradient";
            let fits = match is_output {
                true => desc.dtype.mixes_with(input.dtype),
                false => desc.dtype == of_same,
            };
            if !fits {
                return Err(NormError::MixedDTypes {
                    tensor,
                    expected: match is_output {
                        true => input.dtype.mixing(),
                        false => of_same.to_string(),
                    },
                    actual: desc.dtype,
                    input: input.dtype,
                });
            }
            if desc.shape() != shape {
                return Err(NormError::OutputShape {
                    tensor,
                    shape: desc.shape().to_vec(),
                    input: shape.to_vec(),
                });
            }
        }
        if let Some(gradient) = &self.input_gradient
            && gradient.layout.overlaps()
        {
            return Err(NormError::OutputOverlaps {
                tensor: "input gradient",
                shape: shape.to_vec(),
                strides: gradient.layout.strides.clone(),
            });
        }
        if let Some(sum) = &self.sum_gradient
            && (gate.is_some() || self.input_gradient.as_ref() != Some(sum))
        {
            let gradient = self.input_gradient.as_ref();
            return Err(NormError::Layout {
                tensor: "sum gradient",
                strides: sum.layout.strides.clone(),
                expected: match gradient {
                    _ if gate.is_some() => "no sum gradient beside a gate".to_owned(),
                    Some(gradient) => {
                        format!("the input gradient's, {:?}", gradient.layout.strides)
                    }
                    None => "no sum gradient without an input gradient".to_owned(),
                },
            });
        }
        if let Some(gradient) = &self.gate_gradient {
            let of_input = self.input_gradient.as_ref();
            let expected = match of_input {
                _ if gate.is_none() => Some("no gate gradient without a gate".to_owned()),
                None => Some("an input gradient beside it".to_owned()),
                Some(it) if it.layout != gradient.layout => {
                    Some(format!("the input gradient's, {:?}", it.layout.strides))
                }
                Some(_) => None,
            };
            if let Some(expected) = expected {
                return Err(NormError::Layout {
                    tensor: GATE_GRADIENT,
                    strides: gradient.layout.strides.clone(),
                    expected,
                });
            }
        }
        if self.reads_saved() {
            self.saved_strides()?;
        }
        Ok(())
    }

    /// The normalization without its optional outputs. Gradients pass through a rounding unchanged.
    fn forward(&self) -> NormDesc {
        let input = &self.norm.input;
        let gate = self.gate();
        NormDesc {
            residual: gate.cloned(),
            residual_place: match gate {
                Some(_) => self.norm.residual_place,
                None => ResidualPlace::Input,
            },
            // Scale and bias may have the output's dtype.
            output: Some(TensorDesc::new(
                input.layout.kept(),
                self.output_gradient.dtype,
            )),
            writes_output: true,
            rounding: Rounding::None,
            rotation: None,
            quantization: None,
            writes_sum: false,
            written_statistics: None,
            ..self.norm.clone()
        }
    }

    /// The same without a gate and its gradient, as if other operations multiplied.
    pub fn without_gate(mut self) -> Self {
        if self.gate().is_some() {
            (self.norm.residual, self.norm.residual_place) = (None, ResidualPlace::Input);
            self.norm.activation = Activation::Identity;
        }
        self.gate_gradient = None;
        self
    }

    /// The gate.
    pub fn gate(&self) -> Option<&TensorDesc> {
        let residual = self.norm.residual.as_ref();
        residual.filter(|_| self.norm.residual_place.is_gate())
    }

    /// True if the mean or deviation of a row is needed.
    pub fn reads_saved(&self) -> bool {
        StatisticsKind::of(&self.norm.statistics) != StatisticsKind::None
    }

    /// The same with provided sums: two more numbers in [`saved`](Self::saved) for each row.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{BackwardDesc, DType, NormDesc, Statistics, TensorDesc};
    ///
    /// // Half of a batch: its channels have sums over both halves.
    /// let half = TensorDesc::contiguous([16, 64, 56, 56], DType::F32);
    /// let norm = NormDesc::new(half, [0, 2, 3], Statistics::MeanVariance);
    /// let desc = BackwardDesc::new(norm).with_provided_sums();
    /// assert_eq!(desc.saved.as_ref().unwrap().shape(), [1, 64, 1, 1, 4]);
    /// assert!(!desc.input_problem(desc.param_sums())?.reduces());
    /// # Ok::<(), cubenorm_core::NormError>(())
    /// ```
    pub fn with_provided_sums(mut self) -> Self {
        self.saved = self.saved.map(|saved| {
            let mut shape = saved.shape().to_vec();
            if let Some(numbers) = shape.last_mut() {
                *numbers = 4;
            }
            TensorDesc::contiguous(shape, saved.dtype)
        });
        self
    }

    /// True if the sums over a row are provided: [`saved`](Self::saved) has four numbers per row.
    pub fn provides_sums(&self) -> bool {
        let saved = self.saved.as_ref().map(TensorDesc::shape);
        saved.and_then(<[usize]>::last) == Some(&4)
    }

    /// True if sums over a row are computed for the input's gradient.
    fn reduces(&self) -> bool {
        !self.provides_sums() && StatisticsKind::of(&self.norm.statistics).reduces()
    }

    /// Strides of the pairs after broadcasting to the input's shape.
    fn saved_strides(&self) -> Result<Vec<usize>, NormError> {
        let tensor = "saved statistics";
        let shape = self.norm.input.shape();
        let kind = StatisticsKind::of(&self.norm.statistics);
        // A vector norm has sums, not means, and provided statistics have no sums.
        let may_provide = kind.reduces() && !kind.is_norm();
        let wrong = |shape: &[usize]| NormError::Shape {
            tensor,
            shape: shape.to_vec(),
            expected: match may_provide {
                true => "dimensions that broadcast to the input's, then 2, or 4 with provided sums",
                false => "dimensions that broadcast to the input's, then 2",
            }
            .into(),
        };
        let Some(saved) = &self.saved else {
            return Err(wrong(&[]));
        };
        let Layout {
            shape: sizes,
            strides,
        } = &saved.layout;
        let (Some((numbers, kept)), Some((1, outer))) = (sizes.split_last(), strides.split_last())
        else {
            return Err(wrong(sizes));
        };
        if *numbers != 2 && !(*numbers == 4 && may_provide) {
            return Err(wrong(sizes));
        }
        let expected = self.norm.input.dtype.accumulation();
        if saved.dtype != expected {
            return Err(NormError::MixedDTypes {
                tensor,
                expected: expected.to_string(),
                actual: saved.dtype,
                input: self.norm.input.dtype,
            });
        }
        if sizes.len() != strides.len() {
            return Err(NormError::StrideCount {
                tensor,
                rank: sizes.len(),
                strides: strides.len(),
            });
        }
        let rows = Layout::strided(kept, outer);
        let mut seen = rows.broadcast_to(shape).ok_or_else(|| wrong(sizes))?;
        if kind.reduces() {
            // Pairs are constant along a row, even if the tensor repeats them.
            for &axis in &self.norm.axes {
                seen[axis] = 0;
            }
        }
        Ok(seen)
    }

    /// The parameters whose gradients are computed.
    fn wanted_params(&self) -> impl Iterator<Item = &TensorDesc> {
        let scale = self.norm.scale.as_ref().filter(|_| self.wants_scale);
        let bias = self.norm.bias.as_ref().filter(|_| self.wants_bias);
        [scale, bias].into_iter().flatten()
    }

    /// The source of the gradients of scale and bias over the normalization's own axes, if both
    /// have the same one. It considers whole rows only: [`sums_on`](crate::sums_on) adds
    /// channels-last segments.
    pub fn param_sums(&self) -> ParamSums {
        let mut shapes = self.wanted_params().map(TensorDesc::shape);
        let Some(first) = shapes.next() else {
            return ParamSums::Elsewhere;
        };
        // Without a reduction, row lengths are chosen for the input alone.
        if shapes.any(|shape| shape != first) || !self.reduces() {
            return ParamSums::Elsewhere;
        }
        // Sizes alone distinguish repeated dimensions from others.
        let repeats = self.repeated(first);
        let reduced = |dim: usize| self.norm.axes.contains(&dim);
        let sizes = self.norm.input.shape();
        let all = |wanted: &dyn Fn(usize) -> bool| (0..sizes.len()).all(wanted);
        // The row sums also serve the input's gradient, which is weighted by the scale.
        let scale = self.norm.scale.as_ref();
        let scale_repeats = scale.map_or(repeats.clone(), |scale| self.repeated(scale.shape()));
        let is_constant = |dim: usize| repeats[dim] && scale_repeats[dim] || sizes[dim] == 1;
        if all(&|dim| !reduced(dim) || is_constant(dim)) {
            ParamSums::Rows
        } else if all(&|dim| sizes[dim] == 1 || repeats[dim] != reduced(dim)) {
            ParamSums::Columns
        } else if self.input_gradient.is_some() && self.has_segments() {
            ParamSums::Runs
        } else {
            ParamSums::Elsewhere
        }
    }

    /// True if the reduced dimensions with constant parameters are the innermost of several.
    fn has_segments(&self) -> bool {
        let is_segment = self.segment_dims();
        let sizes = self.norm.input.shape();
        let order = self.memory_order();
        let is_col = |dim: &usize| self.norm.axes.contains(dim) && sizes[*dim] != 1;
        let mut of_segments = order.into_iter().filter(is_col).map(|dim| is_segment[dim]);
        let begins = of_segments.next() == Some(false);
        let mut inner = of_segments.skip_while(|is_inner| !is_inner).peekable();
        begins && inner.peek().is_some() && inner.all(|is_inner| is_inner)
    }

    /// The segments of a row and the elements of each in channels-last layout. `None` unless scale
    /// and all requested parameters are constant along each segment and segment sums are all that
    /// is needed.
    pub(crate) fn sums_of_segments(&self) -> Option<(Segments, usize)> {
        let mut shapes = self.wanted_params().map(TensorDesc::shape);
        let first = shapes.next();
        let is_one = shapes.all(|shape| Some(shape) == first);
        if !(self.reduces() && is_one && self.input_gradient.is_some()) {
            return None;
        }
        let segments = self.segments()?;
        let columns = segments.columns(&self.reduced());
        let is_segment = self.segment_dims();
        let sizes = self.norm.input.shape();
        let dims = || (0..sizes.len()).filter(|&dim| columns[dim]);
        let cols = dims().map(|dim| sizes[dim]).product();
        let are_constant = dims().all(|dim| is_segment[dim]);
        are_constant.then_some((segments, cols))
    }

    fn segments(&self) -> Option<Segments> {
        let input = &self.norm.input;
        let order = self.memory_order();
        Segments::find(input, &order, &self.reduced())
    }

    fn reduced(&self) -> Vec<bool> {
        let dims = 0..self.norm.input.shape().len();
        dims.map(|dim| self.norm.axes.contains(&dim)).collect()
    }

    /// The reduced dimensions along which the scale and all requested parameters are constant.
    fn segment_dims(&self) -> Vec<bool> {
        let params = self.norm.scale.as_ref().into_iter();
        let params = params.chain(self.wanted_params());
        let mut is_inner = self.reduced();
        for param in params {
            for (is_inner, repeats) in is_inner.iter_mut().zip(self.repeated(param.shape())) {
                *is_inner &= repeats;
            }
        }
        is_inner
    }

    /// The shape of the tensor of sums per segment or per row: the input's, with 1 for each reduced
    /// dimension.
    pub fn summed_shape(&self, sums: ParamSums) -> Vec<usize> {
        let is_summed = match sums {
            ParamSums::Runs => self.segment_dims(),
            ParamSums::Segments => self.columns(sums, &self.norm.axes),
            _ => self.reduced(),
        };
        let sizes = self.norm.input.shape().iter().zip(is_summed);
        let kept = sizes.map(|(&size, is_summed)| if is_summed { 1 } else { size });
        kept.collect()
    }

    /// True for each dimension that is a column if these axes are reduced.
    fn columns(&self, sums: ParamSums, axes: &[usize]) -> Vec<bool> {
        match (sums, self.segments()) {
            (ParamSums::Segments, Some(segments)) => segments.columns(&self.reduced()),
            _ => (0..self.norm.input.shape().len())
                .map(|dim| axes.contains(&dim))
                .collect(),
        }
    }

    fn memory_order(&self) -> Vec<usize> {
        let strides = [
            self.norm.input.layout.strides.as_slice(),
            &self.output_gradient.layout.strides,
        ];
        memory_order(self.norm.input.shape(), &strides)
    }

    /// True for each dimension along which a parameter of this shape repeats.
    pub fn repeated(&self, shape: &[usize]) -> Vec<bool> {
        let input = self.norm.input.shape();
        let missing = input.len().saturating_sub(shape.len());
        (0..input.len())
            .map(|dim| dim < missing || shape[dim - missing] == 1 && input[dim] != 1)
            .collect()
    }

    /// The problem over the normalization's own axes. It yields the input's gradient and the sums
    /// for the parameter gradients that `sums` names.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate).
    pub fn input_problem(&self, sums: ParamSums) -> Result<BackwardProblem, NormError> {
        self.validate()?;
        self.problem(&self.norm.axes, sums)
    }

    /// The problem over the dimensions along which a parameter of this shape repeats: its row sums
    /// are the parameter's gradient.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate).
    pub fn param_problem(&self, shape: &[usize]) -> Result<BackwardProblem, NormError> {
        self.validate()?;
        let repeated = self.repeated(shape);
        let axes: Vec<usize> = (0..repeated.len()).filter(|&dim| repeated[dim]).collect();
        let problem = self.problem(&axes, ParamSums::Rows)?;
        Ok(BackwardProblem {
            sum_gradient: None,
            input_gradient: None,
            gate: problem.gate.map(|gate| Gate {
                wants_gradient: false,
                ..gate
            }),
            ..problem
        })
    }

    fn problem(&self, axes: &[usize], sums: ParamSums) -> Result<BackwardProblem, NormError> {
        let norm = self.forward();
        let forward = norm.problem()?;
        let shape = norm.input.shape();
        let is_col = self.columns(sums, axes);
        let order = self.memory_order();
        let split = RowsAndCols::new(shape, &order, &is_col);
        let access = |desc: &TensorDesc| {
            let strides = desc.layout.broadcast_to(shape);
            split.access(&strides.unwrap_or_else(|| vec![0; shape.len()]))
        };
        let saved = match self.reads_saved() {
            true => Some(split.access(&self.saved_strides()?)),
            false => None,
        };
        let segments = self.segments().filter(|_| sums == ParamSums::Segments);
        Ok(BackwardProblem {
            rows: split.rows,
            cols: split.cols,
            segments: segments.map_or(1, |segments| segments.count),
            dtype: forward.dtype,
            output_dtype: self.output_gradient.dtype,
            param_dtype: forward.param_dtype,
            statistics: forward.statistics,
            epsilon: forward.epsilon,
            activation: forward.activation,
            gate: norm.residual.as_ref().map(|gate| Gate {
                access: access(gate),
                dtype: gate.dtype,
                is_of_input: norm.residual_place.is_in_front(),
                wants_gradient: self.gate_gradient.is_some(),
            }),
            input: access(&norm.input),
            output_gradient: access(&self.output_gradient),
            saved,
            provides_sums: self.provides_sums(),
            scale: norm.scale.as_ref().map(access),
            offset: forward.offset,
            bias: norm.bias.as_ref().map(access),
            sum_gradient: self.sum_gradient.as_ref().map(access),
            input_gradient: self.input_gradient.as_ref().map(access),
            row_sums: match sums {
                ParamSums::Rows => Some(Access {
                    col: Vec::new(),
                    ..split.access(&kept_strides(shape, &is_col))
                }),
                ParamSums::Runs => {
                    let kept = self.summed_shape(sums);
                    let strides = Layout::contiguous(kept.clone()).strides.into_iter();
                    let moves = strides.zip(kept.iter().zip(shape));
                    let strides = moves.map(|(stride, (kept, size))| match kept == size {
                        true => stride,
                        false => 0,
                    });
                    Some(split.access(&strides.collect::<Vec<_>>()))
                }
                // Segment sums are stored in the workspace.
                ParamSums::Segments | ParamSums::Columns | ParamSums::Elsewhere => None,
            },
            column_sums: match sums {
                ParamSums::Columns => ColumnSums {
                    products: norm.scale.is_some() && self.wants_scale,
                    gradients: norm.bias.is_some() && self.wants_bias,
                },
                _ => ColumnSums::default(),
            },
            column_strides: split.column_strides(),
            row_strides: split.row_strides(),
        })
    }
}

impl BackwardProblem {
    /// True if there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// True if the result passes through an activation. Its argument is needed only for its derivative.
    pub(crate) fn has_slope(&self) -> bool {
        self.gate.is_none() && self.activation.kind() != ActivationKind::Identity
    }

    /// True if the bias is read: for the derivative of an activation, or for the gradient of an output's gate, which is a
    /// multiple of the value behind scale and bias.
    pub fn reads_bias(&self) -> bool {
        let is_late = |gate: &Gate| gate.wants_gradient && !gate.is_of_input;
        self.has_slope() || self.gate.as_ref().is_some_and(is_late)
    }

    /// True if sums over a row are needed, for the normalization's statistics or for parameters.
    pub fn reduces(&self) -> bool {
        let for_input = self.input_gradient.is_some() && !self.provides_sums;
        self.row_sums.is_some() || for_input && self.statistics.reduces()
    }

    /// Columns of a segment, if sums per segment are requested.
    pub fn summed_segment(&self) -> Option<usize> {
        let last = self.row_sums.as_ref()?.col.last()?;
        (last.size > 0).then_some(last.size)
    }

    /// True if each summed segment can be processed as a row of its own. Its elements must be
    /// contiguous in all tensors. Every parameter and the saved statistics must be constant along
    /// the segment or along the whole row.
    pub(crate) fn has_whole_segments(&self) -> bool {
        let segment = self.summed_segment();
        let mut segments = self.params().filter_map(|param| param.col.last());
        let is_beside = |access: &Access| access.col.last().is_some_and(|dim| dim.stride == 1);
        self.whole().all(is_beside)
            && segments.all(|dim| dim.stride == 0 && Some(dim.size) == segment)
    }

    /// True if the sums of a row are weighted by the scale because it changes along the row.
    pub fn weights(&self) -> bool {
        let changes = self
            .scale
            .as_ref()
            .is_some_and(|scale| !scale.col.is_empty());
        let of_rows = self.row_sums.is_some() && self.summed_segment().is_none();
        changes && self.input_gradient.is_some() && !of_rows
    }

    /// The same with contiguous columns split into segments of constant parameters; `None` if there
    /// is nothing to split.
    pub(crate) fn cut_at_segments(&self) -> Option<Self> {
        if self.column_sums.any() {
            return None;
        }
        let params = self.params().chain(&self.row_sums);
        let segment = segment_to_cut_at(&self.input, self.whole(), params)?;
        Some(Self {
            input: self.input.cut_at(segment),
            output_gradient: self.output_gradient.cut_at(segment),
            sum_gradient: self.sum_gradient.as_ref().map(|it| it.cut_at(segment)),
            input_gradient: self.input_gradient.as_ref().map(|it| it.cut_at(segment)),
            gate: self.gate.as_ref().map(|gate| Gate {
                access: gate.access.cut_at(segment),
                ..gate.clone()
            }),
            ..self.clone()
        })
    }

    /// Tensors with one element per input element.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &Access> + Clone {
        [Some(&self.input), Some(&self.output_gradient)]
            .into_iter()
            .chain([self.sum_gradient.as_ref(), self.input_gradient.as_ref()])
            .chain([self.gate.as_ref().map(|gate| &gate.access)])
            .flatten()
    }

    /// Tensors that broadcast to the input.
    pub(crate) fn params(&self) -> impl Iterator<Item = &Access> + Clone {
        [&self.saved, &self.scale, &self.bias].into_iter().flatten()
    }
}
