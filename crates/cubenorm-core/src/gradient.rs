use serde::{Deserialize, Serialize};

use crate::problem::{RowsAndCols, Strands, kept_strides, memory_order, run_to_cut_at};
use crate::{
    Access, Activation, DType, Epsilon, Layout, NormDesc, NormError, ResidualPlace, StatisticsKind,
    TensorDesc,
};

/// What a normalization passes back: from the gradient of its output those of its input, scale and
/// bias.
///
/// With `x` the input, `n` the elements of a row, `xhat = (x - mean) * rstd` and
/// `dz = output_gradient * activation'(xhat * scale + bias)`:
///
/// ```text
/// scale_gradient = sum(dz * xhat)            over the dimensions that scale repeats along
/// bias_gradient  = sum(dz)                   over those that bias repeats along
/// g              = dz * scale
/// input_gradient = rstd * (g - sum(g) / n - xhat * sum(g * xhat) / n)     over rows
/// ```
///
/// The last line is that of [`Statistics::MeanVariance`](crate::Statistics::MeanVariance); others
/// leave out what they do not reduce. Given statistics are constants: nothing is passed back to
/// them.
///
/// # Shapes and dtypes
///
/// The output's gradient and the input's have the input's shape and dtype, those of scale and bias
/// their shapes and dtypes.
#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize)]
pub struct GradientDesc {
    /// The normalization. Its input is what was normalized: of a residual that is added first, the
    /// sum. What it writes has no say.
    pub norm: NormDesc,
    /// The output's gradient.
    pub output_gradient: TensorDesc,
    /// Pairs of mean and reciprocal deviation, in the accumulation dtype: a dimension of 2 after
    /// dimensions that broadcast to the input. [`NormDesc::statistics_desc`] where the
    /// normalization has written them.
    pub saved: Option<TensorDesc>,
    /// Where the input's gradient goes; `None` where nobody wants it.
    pub input_gradient: Option<TensorDesc>,
    /// Whether the scale's gradient is wanted.
    pub wants_scale: bool,
    /// Whether the bias's gradient is wanted.
    pub wants_bias: bool,
}

/// A gradient in canonical form: `rows` groups of `cols` elements, over each of which two sums are
/// taken.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientProblem {
    /// Number of groups, or of their strands.
    pub rows: usize,
    /// Elements of each of them.
    pub cols: usize,
    /// Rows, one after another, whose sums, weighted by the scale, are those of one group: see
    /// [`NormProblem::strands`](crate::NormProblem::strands). 1 where each is a group by itself.
    pub strands: usize,
    /// Dtype of input and gradients.
    pub dtype: DType,
    /// Dtype of scale and bias.
    pub param_dtype: DType,
    /// What the normalization reduced.
    pub statistics: StatisticsKind,
    /// What it added to the variance or deviation.
    pub epsilon: Epsilon,
    /// What it applied last.
    pub activation: Activation,
    /// What was normalized.
    pub input: Access,
    /// The output's gradient.
    pub output_gradient: Access,
    /// Pairs of mean and reciprocal deviation. Strides count elements.
    pub saved: Option<Access>,
    /// What was multiplied.
    pub scale: Option<Access>,
    /// What was added.
    pub bias: Option<Access>,
    /// Where the input's gradient goes.
    pub input_gradient: Option<Access>,
    /// Where the row's `sum(dz * xhat)` and `sum(dz)` go, where they are wanted: as pairs in the
    /// row-major order of the dimensions that are not summed over. Strides count pairs. Of runs of columns, where
    /// it has columns: the innermost of them do not move.
    pub row_sums: Option<Access>,
    /// Which of each column's are wanted, over all rows.
    pub column_sums: ColumnSums,
    /// Columns from one index of each of the input's dimensions to the next; 0 for those of rows.
    pub column_strides: Vec<usize>,
    /// Rows from one index of each of the input's dimensions to the next; 0 for those of columns.
    pub row_strides: Vec<usize>,
}

/// Sums of columns: what the gradients of scale and bias are where those change along the row alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColumnSums {
    /// Of `dz * xhat`, which is the scale's.
    pub products: bool,
    /// Of `dz`, which is the bias's.
    pub gradients: bool,
}

impl ColumnSums {
    /// How many there are of a column.
    pub fn count(self) -> usize {
        usize::from(self.products) + usize::from(self.gradients)
    }

    /// Whether there are any.
    pub fn any(self) -> bool {
        self.count() > 0
    }
}

/// How the gradients of scale and bias come out of a [`GradientProblem`] over some axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamSums {
    /// They do not.
    Elsewhere,
    /// Each parameter is the same all along a row: from the sums of rows.
    Rows,
    /// Each parameter is the same along runs of columns, as a channel's of a group norm: from the sums of those runs.
    Runs,
    /// Each parameter is the same all along a strand of a row, as a channel's of a group norm with channels last: from
    /// the sums of those.
    Strands,
    /// Each parameter is the same in all rows: from the sums of columns.
    Columns,
}

impl GradientDesc {
    /// The gradients of a normalization with respect to all it has, laid out like the input without its
    /// gaps.
    pub fn new(norm: NormDesc) -> Self {
        let gradient = TensorDesc::new(norm.input.layout.kept(), norm.input.dtype);
        Self {
            saved: Some(norm.statistics_desc()),
            output_gradient: gradient.clone(),
            input_gradient: Some(gradient),
            wants_scale: norm.scale.is_some(),
            wants_bias: norm.bias.is_some(),
            norm,
        }
    }

    /// Checks the description.
    ///
    /// # Errors
    ///
    /// A [`NormError`] that names the tensor, what was expected and what came.
    pub fn validate(&self) -> Result<(), NormError> {
        let norm = self.forward();
        norm.problem()?;
        let input = &norm.input;
        let shape = input.shape();
        let like_input = [
            ("output gradient", Some(&self.output_gradient)),
            ("input gradient", self.input_gradient.as_ref()),
        ];
        for (tensor, desc) in like_input {
            let Some(desc) = desc else { continue };
            desc.validate(tensor)?;
            if desc.dtype != input.dtype {
                return Err(NormError::MixedDTypes {
                    tensor,
                    expected: input.dtype.to_string(),
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
        if self.reads_saved() {
            self.saved_strides()?;
        }
        Ok(())
    }

    /// The normalization without what it writes.
    fn forward(&self) -> NormDesc {
        NormDesc {
            residual: None,
            residual_place: ResidualPlace::Input,
            output: None,
            writes_sum: false,
            written_statistics: None,
            ..self.norm.clone()
        }
    }

    /// Whether mean or deviation of a row are needed.
    pub fn reads_saved(&self) -> bool {
        StatisticsKind::of(&self.norm.statistics) != StatisticsKind::None
    }

    /// Strides of the pairs, seen from the input's shape.
    fn saved_strides(&self) -> Result<Vec<usize>, NormError> {
        let tensor = "saved statistics";
        let shape = self.norm.input.shape();
        let wrong = |shape: &[usize]| NormError::Shape {
            tensor,
            shape: shape.to_vec(),
            expected: "dimensions that broadcast to the input's, then 2".into(),
        };
        let Some(saved) = &self.saved else {
            return Err(wrong(&[]));
        };
        let Layout {
            shape: sizes,
            strides,
        } = &saved.layout;
        let (Some((2, kept)), Some((1, outer))) = (sizes.split_last(), strides.split_last()) else {
            return Err(wrong(sizes));
        };
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
        if StatisticsKind::of(&self.norm.statistics).reduces() {
            // The same all along a row, however often they are there.
            for &axis in &self.norm.axes {
                seen[axis] = 0;
            }
        }
        Ok(seen)
    }

    /// The parameters whose gradients are wanted.
    fn wanted_params(&self) -> impl Iterator<Item = &TensorDesc> {
        let scale = self.norm.scale.as_ref().filter(|_| self.wants_scale);
        let bias = self.norm.bias.as_ref().filter(|_| self.wants_bias);
        [scale, bias].into_iter().flatten()
    }

    /// How the gradients of scale and bias come out of the problem over the normalization's own
    /// axes, where both come out in one way; of whole rows: [`sums_on`](crate::sums_on) knows of strands.
    pub fn param_sums(&self) -> ParamSums {
        let mut shapes = self.wanted_params().map(|tensor| tensor.shape());
        let Some(first) = shapes.next() else {
            return ParamSums::Elsewhere;
        };
        // Without a reduction rows are as long as suits the input alone.
        let reduces = StatisticsKind::of(&self.norm.statistics).reduces();
        if shapes.any(|shape| shape != first) || !reduces {
            return ParamSums::Elsewhere;
        }
        // What repeats nowhere is told apart from what repeats by the sizes alone.
        let repeats = self.repeated(first);
        let reduced = |dim: usize| self.norm.axes.contains(&dim);
        let sizes = self.norm.input.shape();
        let all = |wanted: &dyn Fn(usize) -> bool| (0..sizes.len()).all(wanted);
        // The sums of rows serve the input's gradient too, which the scale weights.
        let scale = self.norm.scale.as_ref();
        let scale_repeats = scale.map_or(repeats.clone(), |scale| self.repeated(scale.shape()));
        let is_constant = |dim: usize| repeats[dim] && scale_repeats[dim] || sizes[dim] == 1;
        if all(&|dim| !reduced(dim) || is_constant(dim)) {
            ParamSums::Rows
        } else if all(&|dim| sizes[dim] == 1 || repeats[dim] != reduced(dim)) {
            ParamSums::Columns
        } else if self.input_gradient.is_some() && self.has_runs() {
            ParamSums::Runs
        } else {
            ParamSums::Elsewhere
        }
    }

    /// Whether the dimensions of a row that parameters are constant along are the innermost of several.
    fn has_runs(&self) -> bool {
        let run = self.run_dims();
        let sizes = self.norm.input.shape();
        let order = self.memory_order();
        let is_col = |dim: &usize| self.norm.axes.contains(dim) && sizes[*dim] != 1;
        let mut of_runs = order.into_iter().filter(is_col).map(|dim| run[dim]);
        let begins = of_runs.next() == Some(false);
        let mut inner = of_runs.skip_while(|is_run| !is_run).peekable();
        begins && inner.peek().is_some() && inner.all(|is_run| is_run)
    }

    /// How many strands rows have, along each of which the scale and all wanted parameters are constant, and how many
    /// elements each of them has; where the sums of strands are all that is wanted.
    pub(crate) fn sums_of_strands(&self) -> Option<(usize, usize)> {
        let reduces = StatisticsKind::of(&self.norm.statistics).reduces();
        let mut shapes = self.wanted_params().map(|tensor| tensor.shape());
        let first = shapes.next();
        let is_one = shapes.all(|shape| Some(shape) == first);
        if !(reduces && is_one && self.input_gradient.is_some()) {
            return None;
        }
        let strands = self.strands()?;
        let columns = strands.columns(&self.reduced());
        let run = self.run_dims();
        let sizes = self.norm.input.shape();
        let dims = || (0..sizes.len()).filter(|&dim| columns[dim]);
        dims()
            .all(|dim| run[dim])
            .then(|| (strands.count, dims().map(|dim| sizes[dim]).product()))
    }

    fn strands(&self) -> Option<Strands> {
        let input = &self.norm.input;
        let order = self.memory_order();
        Strands::find(input, &order, &self.reduced())
    }

    fn reduced(&self) -> Vec<bool> {
        let dims = 0..self.norm.input.shape().len();
        dims.map(|dim| self.norm.axes.contains(&dim)).collect()
    }

    /// The reduced dimensions that the scale and all wanted parameters are constant along.
    fn run_dims(&self) -> Vec<bool> {
        let params = self.norm.scale.as_ref().into_iter();
        let params = params.chain(self.wanted_params());
        let mut is_run = self.reduced();
        for param in params {
            for (is_run, repeats) in is_run.iter_mut().zip(self.repeated(param.shape())) {
                *is_run &= repeats;
            }
        }
        is_run
    }

    /// The shape of what has a sum for each run of columns, for each strand or for each row: the input's, with 1 for
    /// each dimension that is summed over.
    pub fn summed_shape(&self, sums: ParamSums) -> Vec<usize> {
        let is_summed = match sums {
            ParamSums::Runs => self.run_dims(),
            ParamSums::Strands => self.columns(sums, &self.norm.axes),
            _ => self.reduced(),
        };
        let sizes = self.norm.input.shape().iter().zip(is_summed);
        let kept = sizes.map(|(&size, is_summed)| if is_summed { 1 } else { size });
        kept.collect()
    }

    /// Which dimensions are columns, where these axes are summed over.
    fn columns(&self, sums: ParamSums, axes: &[usize]) -> Vec<bool> {
        match (sums, self.strands()) {
            (ParamSums::Strands, Some(strands)) => strands.columns(&self.reduced()),
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

    /// The dimensions that a parameter of this shape repeats along.
    pub fn repeated(&self, shape: &[usize]) -> Vec<bool> {
        let input = self.norm.input.shape();
        let missing = input.len().saturating_sub(shape.len());
        (0..input.len())
            .map(|dim| dim < missing || shape[dim - missing] == 1 && input[dim] != 1)
            .collect()
    }

    /// The problem over the normalization's own axes, which gives the input's gradient and, as
    /// `sums` says, what those of the parameters are made of.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate).
    pub fn input_problem(&self, sums: ParamSums) -> Result<GradientProblem, NormError> {
        self.validate()?;
        self.problem(&self.norm.axes, sums)
    }

    /// The problem over the dimensions that a parameter of this shape repeats along: its gradient is
    /// the sums of rows.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate).
    pub fn param_problem(&self, shape: &[usize]) -> Result<GradientProblem, NormError> {
        self.validate()?;
        let repeated = self.repeated(shape);
        let axes: Vec<usize> = (0..repeated.len()).filter(|&dim| repeated[dim]).collect();
        let problem = self.problem(&axes, ParamSums::Rows)?;
        Ok(GradientProblem {
            input_gradient: None,
            ..problem
        })
    }

    fn problem(&self, axes: &[usize], sums: ParamSums) -> Result<GradientProblem, NormError> {
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
        let strands = self.strands().filter(|_| sums == ParamSums::Strands);
        Ok(GradientProblem {
            rows: split.rows,
            cols: split.cols,
            strands: strands.map_or(1, |strands| strands.count),
            dtype: forward.dtype,
            param_dtype: forward.param_dtype,
            statistics: forward.statistics,
            epsilon: forward.epsilon,
            activation: forward.activation,
            input: access(&norm.input),
            output_gradient: access(&self.output_gradient),
            saved,
            scale: norm.scale.as_ref().map(access),
            bias: norm.bias.as_ref().map(access),
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
                // Those of strands are in the workspace.
                ParamSums::Strands | ParamSums::Columns | ParamSums::Elsewhere => None,
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

impl GradientProblem {
    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// Whether sums over a row are taken: for what the normalization reduced, or for parameters.
    pub fn reduces(&self) -> bool {
        self.row_sums.is_some() || self.input_gradient.is_some() && self.statistics.reduces()
    }

    /// Columns of a run, where sums of runs are wanted.
    pub fn summed_run(&self) -> Option<usize> {
        let last = self.row_sums.as_ref()?.col.last()?;
        (last.size > 0).then_some(last.size)
    }

    /// Whether each run whose sums are wanted may be gone through as a row of its own: its elements lie side by side in all
    /// tensors, and every parameter is one number along it or all along the row, and so is what was saved.
    pub(crate) fn has_whole_runs(&self) -> bool {
        let run = self.summed_run();
        let mut runs = self.params().filter_map(|param| param.col.last());
        let is_beside = |access: &Access| access.col.last().is_some_and(|dim| dim.stride == 1);
        self.whole().all(is_beside) && runs.all(|dim| dim.stride == 0 && Some(dim.size) == run)
    }

    /// Whether the sums of a row are weighted by the scale, because it changes along the row.
    pub fn weights(&self) -> bool {
        let changes = self
            .scale
            .as_ref()
            .is_some_and(|scale| !scale.col.is_empty());
        let of_rows = self.row_sums.is_some() && self.summed_run().is_none();
        changes && self.input_gradient.is_some() && !of_rows
    }

    /// The same with columns that lie side by side cut where parameters change along them, every so many; `None` where there
    /// is nothing to cut.
    pub(crate) fn cut_at_runs(&self) -> Option<Self> {
        if self.column_sums.any() {
            return None;
        }
        let params = self.params().chain(&self.row_sums);
        let run = run_to_cut_at(&self.input, self.whole(), params)?;
        Some(Self {
            input: self.input.cut_at(run),
            output_gradient: self.output_gradient.cut_at(run),
            input_gradient: self.input_gradient.as_ref().map(|it| it.cut_at(run)),
            ..self.clone()
        })
    }

    /// Tensors that every element has a number in.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &Access> + Clone {
        [Some(&self.input), Some(&self.output_gradient)]
            .into_iter()
            .chain([self.input_gradient.as_ref()])
            .flatten()
    }

    /// Those that broadcast to the input.
    pub(crate) fn params(&self) -> impl Iterator<Item = &Access> + Clone {
        [&self.saved, &self.scale, &self.bias].into_iter().flatten()
    }
}
