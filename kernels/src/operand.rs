//! Addresses, loads and stores. Kernels reach memory only through here.
//!
//! CubeCL inserts no bounds checks. An address from here is in bounds for every row and column
//! below the problem's, because validation has checked that the layout spans no more than its
//! buffer; callers guard that rows and columns are.

use cubecl::prelude::*;
use cubenorm_caches::{fetch, store_past_caches};
use cubenorm_core::{AccessBlueprint, Lanes, LoadMode};

use crate::pairs::{pack, unpack};
use crate::types::One;

/// An optional tensor of a kernel.
pub(crate) type Optional<T, S> = ComptimeOption<OwnedTensor<Vector<T, S>>>;

/// Whether the lanes of a vector lie side by side.
pub(crate) fn is_contiguous(access: AccessBlueprint) -> bool {
    matches!(
        access.mode,
        LoadMode::Vector | LoadMode::Pairs | LoadMode::Adjacent
    )
}

/// Elements from the start of a tensor to a row, without any column.
#[cube]
pub(crate) fn row_offset<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    row: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    let contiguous = comptime!(lanes == Lanes::Rows && is_contiguous(access));
    decode::<T, S>(tensor, row, 0usize, access.row_dims, contiguous)
}

/// The same for a row of so many columns. Where rows lie end to end nothing is read from memory to find one, for which
/// units would wait that have just waited for each other.
#[cube]
pub(crate) fn row_start<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    row: usize,
    cols: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    if comptime!(access.end_to_end) {
        row * cols
    } else {
        row_offset::<T, S>(tensor, row, access, lanes)
    }
}

/// Elements from the start of a row to a column.
#[cube]
pub(crate) fn col_offset<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    col: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    let contiguous =
        comptime!(lanes == Lanes::Columns && is_contiguous(access) || access.adjacent_columns);
    let first = access.row_dims;
    let last = comptime!(access.row_dims + access.col_dims);
    decode::<T, S>(tensor, col, first, last, contiguous)
}

/// Decodes an index over the dimensions `first..last`, outermost first.
#[cube]
fn decode<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    index: usize,
    #[comptime] first: usize,
    #[comptime] last: usize,
    #[comptime] contiguous: bool,
) -> usize {
    let mut offset = 0usize;
    let mut rest = index;
    #[unroll]
    for i in 0..comptime!(last - first) {
        let dim = comptime!(last - 1 - i);
        let mut position = rest;
        if comptime!(dim > first) {
            let size = tensor.shape(dim);
            position = rest % size;
            rest /= size;
        }
        // A stride of 1 that is known saves the multiplication and tells the compiler that
        // neighbouring steps are neighbours in memory.
        if comptime!(contiguous && i == 0) {
            offset += position;
        } else {
            offset += position * tensor.stride(dim);
        }
    }
    offset
}

/// The first column of a step.
#[cube]
fn step_col<N: Size>(step: usize, #[comptime] lanes: Lanes) -> usize {
    if comptime!(lanes == Lanes::Columns) {
        step * N::value()
    } else {
        step
    }
}

/// Elements from the start of a row to the first lane of a step.
#[cube]
pub(crate) fn step_offset<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    if comptime!(!access.ragged) {
        col_offset::<T, S>(tensor, step_col::<N>(step, lanes), access, lanes)
    } else if comptime!(access.col_dims == 0) {
        0usize.runtime()
    } else {
        let innermost = comptime!(access.row_dims + access.col_dims - 1);
        let size = tensor.shape(innermost);
        let mut within = step;
        let mut outer = 0usize;
        if comptime!(access.col_dims > 1) {
            let steps = size.div_ceil(N::value());
            within = step % steps;
            outer = decode::<T, S>(tensor, step / steps, access.row_dims, innermost, false);
        }
        // The last vector of a run ends with it.
        let position = min(within * N::value(), size - N::value());
        if comptime!(is_contiguous(access)) {
            outer + position
        } else {
            outer + position * tensor.stride(innermost)
        }
    }
}

/// The same of a tensor that may be absent.
#[cube]
pub(crate) fn optional_offset<T: Float, S: Size, N: Size>(
    tensor: &Optional<T, S>,
    step: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] lanes: Lanes,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        step_offset::<T, S, N>(tensor, step, comptime!(access.unwrap()), lanes)
    } else {
        0usize.runtime()
    }
}

/// An offset so many lanes further on.
#[cube]
pub(crate) fn further(
    offset: usize,
    lanes: usize,
    #[comptime] access: Option<AccessBlueprint>,
) -> usize {
    if comptime!(access.is_some_and(is_contiguous)) {
        offset + lanes
    } else {
        offset
    }
}

/// The vector of a step of a row that starts at `base`, where lanes are one access: all vectors lie at multiples
/// of their width, as the row does.
#[cube]
fn vector_place<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    let of_steps = comptime!(access.col_dims == 1 && !access.ragged);
    // No compiler finds that out by itself: a sum of elements may be more than an address holds.
    if comptime!(of_steps && lanes == Lanes::Columns) {
        base / N::value() + step
    } else if of_steps {
        base / N::value() + step * (tensor.stride(access.row_dims) / N::value())
    } else {
        (base + step_offset::<T, S, N>(tensor, step, access, lanes)) / N::value()
    }
}

/// Elements from one lane to the next, where lanes are gathered.
#[cube]
fn lane_stride<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> usize {
    let dim = comptime!(match lanes {
        Lanes::Columns => access.row_dims + access.col_dims - 1,
        Lanes::Rows => access.row_dims - 1,
    });
    tensor.stride(dim)
}

/// Loads the lanes of one step of a row that starts at `base`, in the accumulation type.
#[cube]
pub(crate) fn load<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> Vector<A, N> {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, lanes);
        Vector::<A, N>::cast_from(tensor[place])
    } else if comptime!(access.mode == LoadMode::Pairs) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, lanes);
        unpack::<A, S, N>(Vector::reinterpret(tensor[place]))
    } else if comptime!(access.mode == LoadMode::Runs) {
        load_two_runs::<T, S, A, N>(tensor, base, step, access).lanes::<N>()
    } else {
        let offset = base + step_offset::<T, S, N>(tensor, step, access, lanes);
        load_lanes::<T, S, A, N>(tensor, offset, access, lanes)
    }
}

/// Brings what [`load`] would load into the caches, where lanes lie side by side, and waits for nothing.
#[cube]
pub(crate) fn fetch_step<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, lanes);
        fetch::<T, S>(&tensor[place]);
    } else if comptime!(access.mode == LoadMode::Adjacent) {
        fetch::<T, S>(&tensor[base + step_offset::<T, S, N>(tensor, step, access, lanes)]);
    }
}

/// What the lanes of a step have along runs of columns, each no shorter than a vector: one number, or two of neighbours.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct TwoRuns<A: Float> {
    pub(crate) here: Vector<A, One>,
    pub(crate) there: Vector<A, One>,
    /// Lanes to the end of the first, more than a vector has where there is no second.
    left: usize,
}

/// Loads those of a step. That the second run is there follows from the vector's being there.
#[cube]
pub(crate) fn load_two_runs<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
) -> TwoRuns<A> {
    let first = access.row_dims;
    let innermost = comptime!(access.row_dims + access.col_dims - 1);
    let size = tensor.shape(innermost);
    let col = step * N::value();
    let run = col / size;
    let left = size - col % size;
    let next = run + select(left < N::value(), 1usize, 0usize);
    let here = base + decode::<T, S>(tensor, run, first, innermost, false);
    let there = base + decode::<T, S>(tensor, next, first, innermost, false);
    TwoRuns::<A> {
        here: Vector::new(A::cast_from(tensor[here].extract(0usize))),
        there: Vector::new(A::cast_from(tensor[there].extract(0usize))),
        left,
    }
}

#[cube]
impl<A: Float> TwoRuns<A> {
    /// The number of each lane.
    pub(crate) fn lanes<N: Size>(&self) -> Vector<A, N> {
        let (here, there) = (self.here.extract(0usize), self.there.extract(0usize));
        let mut value = Vector::<A, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            value.insert(lane, select(lane < self.left, here, there));
        }
        value
    }
}

/// Loads lanes from `offset` on, each by itself; whole vectors, runs and [numbers of rows](load_of_rows) do not come
/// here.
#[cube]
fn load_lanes<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    offset: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) -> Vector<A, N> {
    match comptime!(access.mode) {
        LoadMode::Vector
        | LoadMode::Pairs
        | LoadMode::Splat
        | LoadMode::Runs
        | LoadMode::OfRows => Vector::<A, N>::new(A::cast_from(tensor[offset].extract(0usize))),
        LoadMode::Adjacent => {
            let mut value = Vector::<T, N>::empty();
            #[unroll]
            for lane in 0..N::value() {
                value.insert(lane, tensor[offset + lane].extract(0usize));
            }
            Vector::<A, N>::cast_from(value)
        }
        LoadMode::Gather => {
            let stride = lane_stride::<T, S>(tensor, access, lanes);
            let mut value = Vector::<A, N>::empty();
            #[unroll]
            for lane in 0..N::value() {
                let element = tensor[offset + lane * stride].extract(0usize);
                value.insert(lane, A::cast_from(element));
            }
            value
        }
    }
}

/// Loads what each of the rows from the `first` on has as its only number, `ahead` elements further than it lies.
#[cube]
pub(crate) fn load_of_rows<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    first: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] ahead: usize,
) -> Vector<A, N> {
    let mut value = Vector::<A, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        let place = ahead + row_offset::<T, S>(tensor, first + lane, access, Lanes::Columns);
        value.insert(lane, A::cast_from(tensor[place].extract(0usize)));
    }
    value
}

/// Stores the lanes of one step of a row that starts at `base`.
#[cube]
pub(crate) fn store<T: Float, S: Size, A: Float, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    value: Vector<A, N>,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(&*tensor, base, step, access, lanes);
        let value = Vector::<T, S>::cast_from(value);
        if comptime!(access.past_caches) {
            store_past_caches::<T, S, S>(&mut tensor[place], value);
        } else {
            tensor[place] = value;
        }
    } else if comptime!(access.mode == LoadMode::Pairs) {
        let place = vector_place::<T, S, N>(&*tensor, base, step, access, lanes);
        tensor[place] = Vector::reinterpret(pack::<A, S, N>(value));
    } else if comptime!(access.mode == LoadMode::Adjacent && access.past_caches && !access.ragged) {
        // Of a run that has been moved to where its vectors lie at multiples of one.
        let offset = base + step_offset::<T, S, N>(&*tensor, step, access, lanes);
        store_past_caches::<T, S, N>(&mut tensor[offset], Vector::<T, N>::cast_from(value));
    } else {
        let offset = base + step_offset::<T, S, N>(&*tensor, step, access, lanes);
        store_lanes::<T, S, A, N>(tensor, offset, value, access, lanes);
    }
}

/// Stores lanes from `offset` on, each by itself; whole vectors do not come here.
#[cube]
fn store_lanes<T: Float, S: Size, A: Float, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    offset: usize,
    value: Vector<A, N>,
    #[comptime] access: AccessBlueprint,
    #[comptime] lanes: Lanes,
) {
    match comptime!(access.mode) {
        LoadMode::Adjacent => {
            let value = Vector::<T, N>::cast_from(value);
            #[unroll]
            for lane in 0..N::value() {
                tensor[offset + lane] = Vector::<T, S>::new(value.extract(lane));
            }
        }
        // Nothing that is written repeats, so a splat is one lane.
        LoadMode::Vector
        | LoadMode::Pairs
        | LoadMode::Splat
        | LoadMode::Runs
        | LoadMode::OfRows
        | LoadMode::Gather => {
            let width = N::value();
            let stride = if comptime!(width > 1) {
                lane_stride::<T, S>(&*tensor, access, lanes)
            } else {
                0usize.runtime()
            };
            #[unroll]
            for lane in 0..N::value() {
                let element = T::cast_from(value.extract(lane));
                tensor[offset + lane * stride] = Vector::<T, S>::new(element);
            }
        }
    }
}

/// The start of a row in an optional tensor.
#[cube]
pub(crate) fn optional_row<T: Float, S: Size>(
    tensor: &Optional<T, S>,
    row: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] lanes: Lanes,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        row_offset::<T, S>(tensor, row, comptime!(access.unwrap()), lanes)
    } else {
        0usize.runtime()
    }
}

/// The start of a row of so many columns in an optional tensor.
#[cube]
pub(crate) fn optional_start<T: Float, S: Size>(
    tensor: &Optional<T, S>,
    row: usize,
    cols: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] lanes: Lanes,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        row_start::<T, S>(tensor, row, cols, comptime!(access.unwrap()), lanes)
    } else {
        0usize.runtime()
    }
}
