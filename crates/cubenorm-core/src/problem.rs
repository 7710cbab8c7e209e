//! The canonical form of a normalization: rows and columns.

use crate::activation::Activation;
use crate::desc::{
    Epsilon, NormDesc, Offset, ResidualPlace, RotatedPairs, Rounding, WrittenStatistics,
};
use crate::dtype::DType;
use crate::error::NormError;
use crate::layout::{Layout, TensorDesc};
use crate::quantization::{CODES_PER_WORD, CodeFormat};
use crate::statistics::StatisticsKind;

/// The given scale of a quantised output.
const CODES_SCALE: &str = "scale of the codes";

/// A dimension of one tensor's address: `size` steps of `stride` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Number of indices.
    pub size: usize,
    /// Elements between adjacent indices.
    pub stride: usize,
}

/// Addresses of one tensor by row and column. Each index is decoded over a list of dimensions,
/// outermost first, and the offsets are added. Dimensions are coalesced per tensor: a scale that
/// does not depend on the row has no row dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    /// Dimensions of the row index.
    pub row: Vec<Dim>,
    /// Dimensions of the column index.
    pub col: Vec<Dim>,
}

impl Access {
    /// The same with its innermost columns split into segments of `segment` elements.
    pub(crate) fn cut_at(&self, segment: usize) -> Self {
        let mut cut = self.clone();
        if let Some(Dim { size, stride }) = cut.col.pop_if(|dim| dim.size > segment) {
            let outer = Dim {
                size: size / segment,
                stride: stride * segment,
            };
            cut.col.extend([
                outer,
                Dim {
                    size: segment,
                    stride,
                },
            ]);
        }
        cut
    }

    /// True if the elements of a row are contiguous, in order.
    pub(crate) fn is_one_segment(&self) -> bool {
        let mut next = 1;
        self.col.iter().rev().all(|dim| {
            let is_next = dim.stride == next;
            next *= dim.size;
            is_next
        })
    }

    /// Distinct elements of the tensor, not counting repeated reads.
    pub fn elements(&self) -> usize {
        let dims = self.row.iter().chain(&self.col);
        dims.filter(|dim| dim.stride != 0)
            .map(|dim| dim.size)
            .product()
    }
}

/// Length of the column segment along which every parameter is constant. `None` unless the input
/// has more contiguous columns and every full-size tensor holds whole segments.
pub(crate) fn segment_to_cut_at<'a>(
    input: &Access,
    mut whole: impl Iterator<Item = &'a Access>,
    params: impl Iterator<Item = &'a Access>,
) -> Option<usize> {
    let mut segments = params.filter_map(|param| param.col.last());
    let segment = segments.next()?;
    let is_alike = segment.stride == 0 && segments.all(|it| it == segment);
    let is_cut = input.col.last()?.size > segment.size;
    let has_whole_segments = |access: &Access| {
        let innermost = access.col.last();
        innermost.is_some_and(|dim| dim.size.is_multiple_of(segment.size))
    };
    (is_alike && is_cut && whole.all(has_whole_segments)).then_some(segment.size)
}

/// The elements that a rotation turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The number of rotated elements of a row.
    pub dim: usize,
    /// The elements that are turned together.
    pub pairs: RotatedPairs,
}

impl Turn {
    /// Most lanes of a vector that holds whole pairs, or one half of them.
    pub(crate) fn most_lanes(self) -> usize {
        let elements = match self.pairs {
            RotatedPairs::HalfSplit => self.dim / 2,
            RotatedPairs::Interleaved => self.dim,
        };
        1 << elements.trailing_zeros()
    }
}

/// A description in canonical form: `rows` independent groups of `cols` elements.
///
/// Reduced axes form the columns, kept axes the rows. Of either kind, the axis with the largest
/// stride in the input comes first, independent of the order in the tensor.
///
/// A group of a channels-last tensor consists of short, distant parts, which suit no vector. Such a
/// group may be split into several rows, its [`segments`](Self::segments): one for each channel,
/// adjacent to the segments of all other groups.
#[derive(Debug, Clone, PartialEq)]
pub struct NormProblem {
    /// Number of independent groups, or of their segments.
    pub rows: usize,
    /// Elements of each group or segment.
    pub cols: usize,
    /// Consecutive rows that share their statistics; 1 if each row is a group.
    pub segments: usize,
    /// Dtype of input and sum.
    pub dtype: DType,
    /// Dtype of the residual.
    pub residual_dtype: DType,
    /// Dtype of the output.
    pub output_dtype: DType,
    /// Dtype of scale and bias.
    pub param_dtype: DType,
    /// Dtype of provided statistics.
    pub provided_dtype: DType,
    /// The statistics to reduce.
    pub statistics: StatisticsKind,
    /// The constant added to the variance or deviation.
    pub epsilon: Epsilon,
    /// The activation.
    pub activation: Activation,
    /// The input.
    pub input: Access,
    /// The residual.
    pub residual: Option<Access>,
    /// The position of the residual addition.
    pub residual_place: ResidualPlace,
    /// The scale.
    pub scale: Option<Access>,
    /// Added to the scale; zero without one.
    pub offset: Offset,
    /// The rounding of the normalized value; none if the output has the accumulation dtype.
    pub rounding: Rounding,
    /// The bias.
    pub bias: Option<Access>,
    /// Provided means.
    pub mean: Option<Access>,
    /// Provided variances, or the `alpha` of dynamic tanh.
    pub variance: Option<Access>,
    /// The rotation: its table and the elements that it turns.
    pub rotation: Option<(Access, Turn)>,
    /// The format of a quantised output, and the given scale.
    pub quantization: Option<(CodeFormat, Option<Access>)>,
    /// The result, in elements: a code of a quantised output is one.
    pub output: Access,
    /// The layout of the result, allocated or given.
    pub output_layout: Layout,
    /// True if the result is written.
    pub writes_output: bool,
    /// True if `input + residual` is written, addressed as the output.
    pub writes_sum: bool,
    /// The statistics to write for each row, and their destination: pairs in the row-major order of
    /// the kept axes. Strides count pairs.
    pub written_statistics: Option<(WrittenStatistics, Access)>,
}

impl NormProblem {
    /// True if there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// The same with contiguous columns split into segments of constant parameters; `None` if there
    /// is nothing to split.
    pub(crate) fn cut_at_segments(&self) -> Option<Self> {
        let segment = segment_to_cut_at(&self.input, self.whole(), self.params())?;
        Some(Self {
            input: self.input.cut_at(segment),
            residual: self.residual.as_ref().map(|it| it.cut_at(segment)),
            output: self.output.cut_at(segment),
            ..self.clone()
        })
    }

    /// True if statistics and scale may be folded into one factor.
    pub(crate) fn folds(&self) -> bool {
        // A norm has two factors, whose product may not be finite. A rounded value is a factor of its own.
        let has_one_factor =
            !self.statistics.is_norm() && self.statistics != StatisticsKind::DynamicTanh;
        has_one_factor && self.rounding == Rounding::None && self.rotation.is_none()
    }

    /// Tensors with one element per input element.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &Access> + Clone {
        [
            Some(&self.input),
            Some(&self.output),
            self.residual.as_ref(),
        ]
        .into_iter()
        .flatten()
    }

    /// Tensors that broadcast to the input.
    pub(crate) fn params(&self) -> impl Iterator<Item = &Access> + Clone {
        let table = self.rotation.as_ref().map(|(table, _)| table);
        [&self.scale, &self.bias, &self.mean, &self.variance]
            .into_iter()
            .flatten()
            .chain(table)
    }
}

impl NormDesc {
    /// Validates the description and converts it to canonical form. This is the only place that
    /// checks a description.
    ///
    /// # Errors
    ///
    /// A [`NormError`] that names the tensor, the expected value and the actual one.
    pub fn problem(&self) -> Result<NormProblem, NormError> {
        self.canonical(Rows::Even, &|_| false)
    }

    /// [`problem`](Self::problem), with a choice of rows for descriptions that reduce nothing.
    /// `in_segments` decides if rows with channel segments are split into them.
    pub(crate) fn canonical(
        &self,
        rows: Rows,
        in_segments: &dyn Fn(&Segments) -> bool,
    ) -> Result<NormProblem, NormError> {
        let input = &self.input;
        input.validate("input")?;
        let shape = input.shape();
        let reduced = self.reduced_axes()?;
        self.check_epsilon()?;
        self.check_offset()?;
        let kind = StatisticsKind::of(&self.statistics);
        let table = self.rotation.as_ref().map(|rotation| &rotation.table);
        let [param_dtype, provided_dtype] = [
            self.shared_dtype([("scale", self.scale.as_ref()), ("bias", self.bias.as_ref())])?,
            self.shared_dtype(
                ["mean", kind.name_of_variance()]
                    .into_iter()
                    .zip(self.given())
                    .chain([("rotation table", table), (CODES_SCALE, self.codes_scale())]),
            )?,
        ];

        let output_layout = self.output_layout()?;
        self.check_written(kind)?;
        let broadcast = |tensor: Option<&TensorDesc>, name| {
            tensor
                .map(|tensor| self.broadcast(tensor, name))
                .transpose()
        };
        self.check_residual()?;
        let residual = broadcast(self.residual.as_ref(), "residual")?;
        let scale = broadcast(self.scale.as_ref(), "scale")?;
        let bias = broadcast(self.bias.as_ref(), "bias")?;
        let [mean, variance] = self.given();
        let (mean, variance) = (
            broadcast(mean, "mean")?,
            broadcast(variance, kind.name_of_variance())?,
        );

        self.check_rotation(kind)?;
        let table = self.rotation_strides()?;
        self.check_quantization(kind)?;
        let codes_scale = self.codes_scale();
        let codes_strides = broadcast(codes_scale, CODES_SCALE)?;

        let params = [&scale, &bias, &mean, &variance];
        let params: Vec<&[usize]> = params.into_iter().flatten().map(Vec::as_slice).collect();
        let whole: Vec<&[usize]> = [
            Some(&input.layout.strides),
            Some(&output_layout.strides),
            residual.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(Vec::as_slice)
        .collect();
        let order = memory_order(shape, &[&input.layout.strides, &output_layout.strides]);
        let is_whole = self.rotation.is_some() || self.quantization.is_some();
        let segments = match kind.reduces() && !is_whole {
            true => Segments::find(input, &order, &reduced).filter(in_segments),
            false => None,
        };
        let is_col: Vec<bool> = match &segments {
            Some(segments) => segments.columns(&reduced),
            None if kind.reduces() || is_whole => reduced.clone(),
            None => innermost_columns(shape, &order, &whole, &params, input.dtype.size(), rows),
        };
        let split = RowsAndCols::new(shape, &order, &is_col);
        let access = |strides: &[usize]| split.access(strides);

        let rotation = self.rotation.as_ref().zip(table);
        let rotation = rotation.map(|(rotation, strides)| {
            let stride = strides.last().copied().unwrap_or(1);
            let table = Access {
                col: vec![Dim {
                    size: 2 * rotation.dim(),
                    stride,
                }],
                ..access(&strides)
            };
            let turn = Turn {
                dim: rotation.dim(),
                pairs: rotation.pairs,
            };
            (table, turn)
        });
        let written_statistics = self.written_statistics.map(|written| {
            let row = access(&kept_strides(shape, &reduced)).row;
            let col = Vec::new();
            (written, Access { row, col })
        });
        Ok(NormProblem {
            rows: split.rows,
            cols: split.cols,
            segments: segments.map_or(1, |segments| segments.count),
            dtype: input.dtype,
            residual_dtype: self.residual.as_ref().unwrap_or(input).dtype,
            output_dtype: self.output_dtype(),
            param_dtype,
            provided_dtype,
            statistics: kind,
            epsilon: self.epsilon,
            activation: self.activation,
            input: access(&input.layout.strides),
            residual: residual.as_deref().map(access),
            residual_place: self.residual_place,
            scale: scale.as_deref().map(access),
            offset: match self.scale {
                Some(_) => self.offset,
                None => Offset::ZERO,
            },
            rounding: match self.output_dtype() == input.dtype.accumulation() {
                true => Rounding::None,
                false => self.rounding,
            },
            bias: bias.as_deref().map(access),
            mean: mean.as_deref().map(access),
            variance: variance.as_deref().map(access),
            rotation,
            quantization: self
                .quantization
                .as_ref()
                .map(|it| (it.format, codes_strides.as_deref().map(access))),
            output: access(&output_layout.strides),
            output_layout,
            writes_output: self.writes_output,
            writes_sum: self.writes_sum,
            written_statistics,
        })
    }

    fn check_epsilon(&self) -> Result<(), NormError> {
        let epsilon = self.epsilon.value();
        match epsilon.is_finite() && epsilon >= 0.0 {
            true => Ok(()),
            false => Err(NormError::Epsilon { epsilon }),
        }
    }

    fn check_offset(&self) -> Result<(), NormError> {
        let offset = self.offset.value();
        match offset.is_finite() {
            true => Ok(()),
            false => Err(NormError::Offset { offset }),
        }
    }

    fn check_residual(&self) -> Result<(), NormError> {
        let input = self.input.dtype;
        match &self.residual {
            Some(residual) if !residual.dtype.mixes_with(input) => {
                Err(self.mixed("residual", residual.dtype, input.mixing()))
            }
            Some(_)
                if self.residual_place == ResidualPlace::InputGate
                    && self.activation.parameters() != [0.0, 0.0] =>
            {
                Err(NormError::Gate {
                    activation: self.activation,
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks what a rotation goes with.
    fn check_rotation(&self, kind: StatisticsKind) -> Result<(), NormError> {
        let Some(rotation) = &self.rotation else {
            return Ok(());
        };
        let shape = self.input.shape();
        let turns_rows = kind.reduces() || kind == StatisticsKind::None;
        let reason = if self.axes != [shape.len() - 1] || !turns_rows {
            Some("expected statistics of the last axis alone, or none")
        } else if self.activation != Activation::Identity {
            Some("expected no activation")
        } else if self.residual.is_some() && self.residual_place != ResidualPlace::Input {
            Some("expected a residual that is added first")
        } else if !self.writes_output {
            Some("expected an output")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(NormError::Rotation { reason });
        }
        let (dim, features) = (rotation.dim(), shape[shape.len() - 1]);
        let numbers = rotation.table.shape().last().copied().unwrap_or(0);
        if numbers != 2 * dim || dim == 0 || !dim.is_multiple_of(2) || dim > features {
            return Err(NormError::Shape {
                tensor: "rotation table",
                shape: rotation.table.shape().to_vec(),
                expected: format!(
                    "cosines and sines of an even number of elements, {features} at most"
                ),
            });
        }
        Ok(())
    }

    /// The given scale of a quantised output.
    pub(crate) fn codes_scale(&self) -> Option<&TensorDesc> {
        self.quantization.as_ref()?.scale.as_ref()
    }

    /// Checks what a quantised output goes with.
    fn check_quantization(&self, kind: StatisticsKind) -> Result<(), NormError> {
        let writes_scale = self.written_statistics == Some(WrittenStatistics::Scale);
        let Some(quantization) = &self.quantization else {
            return match writes_scale {
                true => Err(NormError::NothingToWrite {
                    tensor: "statistics",
                    reason: "the output is not quantised, so its rows have no scale",
                }),
                false => Ok(()),
            };
        };
        let shape = self.input.shape();
        let last = shape[shape.len() - 1];
        let is_given = quantization.scale.is_some();
        let reason = if self.axes != [shape.len() - 1] || !kind.reduces() {
            Some("expected statistics of the last axis alone")
        } else if !last.is_multiple_of(CODES_PER_WORD) {
            Some("expected a multiple of 4 elements, since a word has four codes")
        } else if self.output.is_some() {
            Some("expected no other output")
        } else if !self.writes_output {
            Some("expected an output")
        } else if self.rotation.is_some() {
            Some("expected no rotation")
        } else if self.rounding != Rounding::None {
            Some("expected no rounding before the scale, since codes have no dtype to round to")
        } else if !is_given && !writes_scale {
            Some("expected the scale to be given or written")
        } else if is_given && self.written_statistics.is_some() {
            Some("expected no statistics beside a given scale")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(NormError::Quantization { reason });
        }
        match &quantization.scale {
            Some(scale) if scale.shape().last().is_some_and(|size| *size != 1) => {
                Err(NormError::Shape {
                    tensor: CODES_SCALE,
                    shape: scale.shape().to_vec(),
                    expected: "1 in the last dimension: one scale per row".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Strides of the rotation's table after broadcasting to the input's shape. The last is the
    /// table's own.
    fn rotation_strides(&self) -> Result<Option<Vec<usize>>, NormError> {
        let Some(rotation) = &self.rotation else {
            return Ok(None);
        };
        let (tensor, table) = ("rotation table", &rotation.table);
        table.validate(tensor)?;
        let mut one = table.layout.clone();
        let last = one.strides.last().copied();
        if let Some(size) = one.shape.last_mut() {
            *size = 1;
        }
        let strides = one.broadcast_to(self.input.shape());
        let mut strides = strides.ok_or_else(|| NormError::Broadcast {
            tensor,
            shape: table.shape().to_vec(),
            input: self.input.shape().to_vec(),
        })?;
        if let (Some(own), Some(last)) = (strides.last_mut(), last) {
            *own = last;
        }
        Ok(Some(strides))
    }

    /// Checks that the optional outputs are computed.
    fn check_written(&self, kind: StatisticsKind) -> Result<(), NormError> {
        if self.writes_sum && self.residual_place != ResidualPlace::Input {
            return Err(NormError::NothingToWrite {
                tensor: "sum",
                reason: match self.residual_place.is_gate() {
                    true => "the residual is a gate, which is multiplied",
                    false => "the residual is added to the result, not to the input",
                },
            });
        }
        if !self.writes_output && (self.writes_sum || self.written_statistics.is_none()) {
            return Err(NormError::NothingToWrite {
                tensor: "output",
                reason: "it is left out, which takes statistics and no sum to be written",
            });
        }
        let computed = match self.written_statistics {
            None => true,
            Some(WrittenStatistics::MeanRstd | WrittenStatistics::Scale) => kind.reduces(),
            Some(WrittenStatistics::MeanVariance | WrittenStatistics::MeanRstdVariance) => {
                kind.reduces_variance()
            }
        };
        match computed {
            true => Ok(()),
            false => Err(NormError::NothingToWrite {
                tensor: "statistics",
                reason: "they are not computed",
            }),
        }
    }

    fn reduced_axes(&self) -> Result<Vec<bool>, NormError> {
        let rank = self.input.layout.rank();
        let mut reduced = vec![false; rank];
        for &axis in &self.axes {
            let seen = reduced
                .get_mut(axis)
                .ok_or(NormError::AxisOutOfRange { axis, rank })?;
            if std::mem::replace(seen, true) {
                return Err(NormError::AxisRepeated {
                    axis,
                    axes: self.axes.clone(),
                });
            }
        }
        Ok(reduced)
    }

    /// The dtype of a pair of parameters. The first one must be compatible with the input's, and
    /// the second must be equal to the first. The input's dtype if there are no parameters.
    fn shared_dtype<'a>(
        &self,
        params: impl IntoIterator<Item = (&'static str, Option<&'a TensorDesc>)>,
    ) -> Result<DType, NormError> {
        let (input, output) = (self.input.dtype, self.output_dtype());
        // Codes have no dtype, and the sum may have another than the activations.
        let residual = self
            .residual
            .as_ref()
            .filter(|_| self.quantization.is_some());
        let residual = residual.map_or(input, |residual| residual.dtype);
        let mut params = params
            .into_iter()
            .filter_map(|(name, tensor)| Some((name, tensor?.dtype)));
        let Some((first_name, first)) = params.next() else {
            return Ok(input);
        };
        let mut accepted = vec![input];
        for dtype in [output, residual, input.accumulation()] {
            if !accepted.contains(&dtype) {
                accepted.push(dtype);
            }
        }
        if !accepted.contains(&first) {
            let names: Vec<String> = accepted.iter().map(DType::to_string).collect();
            let expected = names.join(" or ");
            return Err(self.mixed(first_name, first, expected));
        }
        match params.find(|&(_, dtype)| dtype != first) {
            Some((other, dtype)) => {
                Err(self.mixed(other, dtype, format!("{first} like {first_name}")))
            }
            None => Ok(first),
        }
    }

    fn mixed(&self, tensor: &'static str, actual: DType, expected: String) -> NormError {
        NormError::MixedDTypes {
            tensor,
            expected,
            actual,
            input: self.input.dtype,
        }
    }

    fn broadcast(&self, tensor: &TensorDesc, name: &'static str) -> Result<Vec<usize>, NormError> {
        tensor.validate(name)?;
        let shape = self.input.shape();
        tensor
            .layout
            .broadcast_to(shape)
            .ok_or_else(|| NormError::Broadcast {
                tensor: name,
                shape: tensor.layout.shape.clone(),
                input: shape.to_vec(),
            })
    }

    /// The dtype of the output: the input's, unless the output is given.
    pub fn output_dtype(&self) -> DType {
        self.output.as_ref().unwrap_or(&self.input).dtype
    }

    fn output_layout(&self) -> Result<Layout, NormError> {
        let input = &self.input.layout;
        if self.quantization.is_some() {
            return Ok(Layout::contiguous(input.shape.clone()));
        }
        let Some(output) = &self.output else {
            return Ok(input.kept());
        };
        let tensor = "output";
        output.validate(tensor)?;
        if !output.dtype.mixes_with(self.input.dtype) {
            return Err(self.mixed(tensor, output.dtype, self.input.dtype.mixing()));
        }
        let shape = output.layout.shape.clone();
        if shape != input.shape {
            return Err(NormError::OutputShape {
                tensor,
                shape,
                input: input.shape.clone(),
            });
        }
        if output.layout.overlaps() {
            return Err(NormError::OutputOverlaps {
                tensor,
                shape,
                strides: output.layout.strides.clone(),
            });
        }
        Ok(output.layout.clone())
    }
}

/// Dimensions in memory order, outermost first: by the stride in the first tensor, then in the
/// next. Rows and columns are numbered in this order, so adjacent numbers are adjacent in memory.
pub(crate) fn memory_order(shape: &[usize], strides: &[&[usize]]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shape.len()).filter(|&dim| shape[dim] != 1).collect();
    order.sort_by_key(|&dim| {
        let strides: Vec<usize> = strides.iter().map(|strides| strides[dim]).collect();
        std::cmp::Reverse(strides)
    });
    order
}

/// Strides of a tensor of one value per row, in the row-major order of the kept dimensions.
pub(crate) fn kept_strides(shape: &[usize], reduced: &[bool]) -> Vec<usize> {
    let sizes = shape.iter().zip(reduced);
    let kept = sizes.map(|(&size, &reduced)| if reduced { 1 } else { size });
    let strides = Layout::contiguous(kept.collect::<Vec<_>>()).strides;
    let moves = strides.into_iter().zip(reduced);
    moves
        .map(|(stride, &reduced)| if reduced { 0 } else { stride })
        .collect()
}

/// The segments of a row: a few elements that are adjacent in memory, next to elements of other
/// rows. The next few elements of the same row are far away.
pub(crate) struct Segments {
    /// True for each dimension along which the segments are adjacent.
    is_segment: Vec<bool>,
    /// Segments of a row.
    pub(crate) count: usize,
    /// Adjacent elements of all rows.
    pub(crate) beside: usize,
}

impl Segments {
    /// The segments of a tensor's rows, or `None`. `order` is the memory order of the dimensions.
    pub(crate) fn find(input: &TensorDesc, order: &[usize], reduced: &[bool]) -> Option<Self> {
        let Layout { shape, strides } = &input.layout;
        let mut is_segment = vec![false; shape.len()];
        let mut count = 1;
        let mut outer = order.iter().rev().copied().peekable();
        while let Some(dim) = outer.next_if(|&dim| reduced[dim] && strides[dim] == count) {
            is_segment[dim] = true;
            count *= shape[dim];
        }
        let mut beside = count;
        while let Some(dim) = outer.next_if(|&dim| !reduced[dim] && strides[dim] == beside) {
            beside *= shape[dim];
        }
        let goes_on = outer.any(|dim| reduced[dim]);
        (count > 1 && beside > count && goes_on).then_some(Self {
            is_segment,
            count,
            beside,
        })
    }

    /// True for each dimension that is a column if segments are rows.
    pub(crate) fn columns(&self, reduced: &[bool]) -> Vec<bool> {
        let dims = reduced.iter().zip(&self.is_segment);
        dims.map(|(&reduced, &is_segment)| reduced && !is_segment)
            .collect()
    }
}

/// The dimensions and sizes of rows and columns.
pub(crate) struct RowsAndCols<'a> {
    shape: &'a [usize],
    row_order: Vec<usize>,
    col_order: Vec<usize>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl<'a> RowsAndCols<'a> {
    pub(crate) fn new(shape: &'a [usize], order: &[usize], is_col: &[bool]) -> Self {
        let of = |wanted: bool| {
            order
                .iter()
                .copied()
                .filter(move |&dim| is_col[dim] == wanted)
        };
        let (row_order, col_order): (Vec<_>, Vec<_>) = (of(false).collect(), of(true).collect());
        // The product is at most the element count, unless another dimension is empty.
        let is_empty = shape.contains(&0);
        let size = |order: &[usize]| match is_empty {
            true => 0,
            false => order.iter().map(|&dim| shape[dim]).product(),
        };
        Self {
            shape,
            rows: size(&row_order),
            cols: size(&col_order),
            row_order,
            col_order,
        }
    }

    /// Columns between adjacent indices of each dimension; 0 for row dimensions.
    pub(crate) fn column_strides(&self) -> Vec<usize> {
        self.steps(&self.col_order)
    }

    /// Rows between adjacent indices of each dimension; 0 for column dimensions.
    pub(crate) fn row_strides(&self) -> Vec<usize> {
        self.steps(&self.row_order)
    }

    fn steps(&self, order: &[usize]) -> Vec<usize> {
        let mut strides = vec![0; self.shape.len()];
        let mut stride = 1;
        for &dim in order.iter().rev() {
            strides[dim] = stride;
            stride *= self.shape[dim].max(1);
        }
        strides
    }

    /// The addressing of a tensor of these strides.
    pub(crate) fn access(&self, strides: &[usize]) -> Access {
        Access {
            row: coalesce(self.shape, strides, &self.row_order),
            col: coalesce(self.shape, strides, &self.col_order),
        }
    }
}

/// The dimensions of `order` for one tensor, with evenly strided neighbours merged.
fn coalesce(shape: &[usize], strides: &[usize], order: &[usize]) -> Vec<Dim> {
    let mut dims: Vec<Dim> = Vec::new();
    for &dim in order {
        let next = Dim {
            size: shape[dim],
            stride: strides[dim],
        };
        match dims.last_mut() {
            Some(last) if last.stride == next.stride.saturating_mul(next.size) => {
                last.size = last.size.saturating_mul(next.size);
                last.stride = next.stride;
            }
            _ => dims.push(next),
        }
    }
    // A tensor with stride 0 throughout has no dimension to decode.
    match dims.as_slice() {
        [Dim { stride: 0, .. }] => Vec::new(),
        _ => dims,
    }
}

/// The row length of a problem that reduces nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Dimensions that every tensor traverses with one stride, so no index is decoded within a row.
    Even,
    /// Several `Even` rows joined, decoded per column in tensors of uneven strides. Rows extend
    /// over segments of constant parameters that vectors may not divide, and until a row is long
    /// enough.
    Joined {
        /// Bytes of a long enough row.
        least_bytes: usize,
        /// Elements that every vector width divides.
        multiple: usize,
    },
    /// One row per parameter value, if parameters change along the innermost dimensions only. All
    /// elements of a row then share one set of coefficients.
    OfParams,
}

/// The columns if nothing is reduced: the innermost dimensions that form a row of elements of
/// `bytes` bytes.
fn innermost_columns(
    shape: &[usize],
    order: &[usize],
    whole: &[&[usize]],
    params: &[&[usize]],
    bytes: usize,
    rows: Rows,
) -> Vec<bool> {
    let mut is_col = vec![false; shape.len()];
    let Some((&innermost, outer)) = order.split_last() else {
        return is_col;
    };
    let moves = |dim: usize| params.iter().any(|strides| strides[dim] != 0);
    if rows == Rows::OfParams && moves(innermost) {
        let outer = outer.iter().rev().skip_while(|&&dim| moves(dim));
        let outer: Vec<usize> = outer.copied().collect();
        if !outer.is_empty() && !outer.iter().any(|&dim| moves(dim)) {
            for dim in outer {
                is_col[dim] = true;
            }
            return is_col;
        }
    }
    is_col[innermost] = true;
    let mut inner = innermost;
    let mut len = shape[innermost];
    let mut is_plain = true;
    let is_constant = params.iter().all(|strides| strides[innermost] == 0);
    for &dim in outer.iter().rev() {
        let is_even =
            |strides: &&[usize]| strides[dim] == strides[inner].saturating_mul(shape[inner]);
        let fits = whole.iter().all(is_even);
        // After a dimension of uneven stride every index is decoded, so rows extend past it only as
        // far as needed.
        is_plain &= fits && params.iter().all(is_even);
        let (has_segments, is_short) = match rows {
            Rows::Joined {
                least_bytes,
                multiple,
            } => (
                is_constant && !len.is_multiple_of(multiple) && moves(dim),
                len.saturating_mul(bytes) < least_bytes,
            ),
            Rows::Even | Rows::OfParams => (false, false),
        };
        if !(is_plain || is_short || has_segments && fits) {
            break;
        }
        is_col[dim] = true;
        inner = dim;
        len = len.saturating_mul(shape[dim]);
    }
    is_col
}
