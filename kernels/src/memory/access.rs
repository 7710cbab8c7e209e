//! Addresses, loads and stores. No other module indexes a tensor.
//!
//! CubeCL inserts no bounds checks. Why each address is in bounds:
//!
//! 1. Validation has checked that the layout of each tensor spans no more than its buffer.
//! 2. Callers pass rows and columns below the problem's.
//! 3. An address decodes such a row and column over that layout.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, CODES_PER_WORD, LoadMode, Vectorization};
use cubenorm_cpu_hints::{prefetch, store_nontemporal};

use crate::memory::packed_half::{pack, unpack};
use crate::types::One;

/// Optional tensor argument of a kernel.
pub(crate) type Optional<T, S> = ComptimeOption<OwnedTensor<Vector<T, S>>>;

/// True if the lanes of a vector are contiguous in memory.
pub(crate) fn is_contiguous(access: AccessBlueprint) -> bool {
    matches!(
        access.mode,
        LoadMode::Vector | LoadMode::PackedHalf2 | LoadMode::PackedByte4 | LoadMode::Unaligned
    )
}

/// Offset of a row in elements, at column 0.
#[cube]
pub(crate) fn row_offset<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    row: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    let contiguous =
        comptime!(vectorization == Vectorization::Perpendicular && is_contiguous(access));
    decode::<T, S>(tensor, row, 0usize, access.row_dims, contiguous)
}

/// Offset of a row of `cols` columns. Packed rows need no stride from memory. That load would
/// follow a barrier and its latency would be exposed.
#[cube]
pub(crate) fn row_start<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    row: usize,
    cols: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    if comptime!(access.has_packed_rows()) {
        row * cols
    } else {
        row_offset::<T, S>(tensor, row, access, vectorization)
    }
}

/// Offset of a column from the start of its row, in elements.
#[cube]
pub(crate) fn col_offset<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    col: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    let contiguous = comptime!(
        vectorization == Vectorization::Parallel && is_contiguous(access)
            || access.has_unit_stride()
    );
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
        // A comptime stride of 1 saves the multiplication. It also tells the compiler that
        // consecutive steps are contiguous.
        if comptime!(contiguous && i == 0) {
            offset += position;
        } else {
            offset += position * tensor.stride(dim);
        }
    }
    offset
}

/// First column of a step.
#[cube]
fn step_col<N: Size>(step: usize, #[comptime] vectorization: Vectorization) -> usize {
    if comptime!(vectorization == Vectorization::Parallel) {
        step * N::value()
    } else {
        step
    }
}

/// Offset of a step's first lane from the start of its row, in elements.
#[cube]
pub(crate) fn step_offset<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    if comptime!(!access.has_tail()) {
        col_offset::<T, S>(
            tensor,
            step_col::<N>(step, vectorization),
            access,
            vectorization,
        )
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
        // The tail vector ends with its segment and overlaps the vector before.
        let position = min(within * N::value(), size - N::value());
        if comptime!(is_contiguous(access)) {
            outer + position
        } else {
            outer + position * tensor.stride(innermost)
        }
    }
}

/// [`step_offset`] of an optional tensor; 0 if it is absent.
#[cube]
pub(crate) fn optional_offset<T: Float, S: Size, N: Size>(
    tensor: &Optional<T, S>,
    step: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] vectorization: Vectorization,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        step_offset::<T, S, N>(tensor, step, comptime!(access.unwrap()), vectorization)
    } else {
        0usize.runtime()
    }
}

/// Advances an offset by `lanes` elements if the lanes of a vector are contiguous.
#[cube]
pub(crate) fn offset_by(
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

/// Index of a step's vector in a tensor viewed as aligned vectors. The row starts at `base`.
#[cube]
fn vector_place<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    let of_steps = comptime!(access.col_dims == 1 && !access.has_tail());
    // Divides before adding: the compiler cannot prove that the sum of elements does not overflow.
    if comptime!(of_steps && vectorization == Vectorization::Parallel) {
        base / N::value() + step
    } else if of_steps {
        base / N::value() + step * (tensor.stride(access.row_dims) / N::value())
    } else {
        (base + step_offset::<T, S, N>(tensor, step, access, vectorization)) / N::value()
    }
}

/// Stride between two lanes of a gather, in elements.
#[cube]
fn lane_stride<T: Float, S: Size>(
    tensor: &Tensor<Vector<T, S>>,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> usize {
    let dim = comptime!(match vectorization {
        Vectorization::Parallel => access.row_dims + access.col_dims - 1,
        Vectorization::Perpendicular => access.row_dims - 1,
    });
    tensor.stride(dim)
}

/// Loads one step of a row that starts at `base`, converted to the accumulation type.
#[cube]
pub(crate) fn load<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> Vector<A, N> {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, vectorization);
        Vector::<A, N>::cast_from(tensor[place])
    } else if comptime!(access.mode == LoadMode::PackedHalf2) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, vectorization);
        unpack::<A, S, N>(Vector::reinterpret(tensor[place]))
    } else if comptime!(access.mode == LoadMode::Segments) {
        load_two_segments::<T, S, A, N>(tensor, base, step, access).lanes::<N>()
    } else {
        let offset = base + step_offset::<T, S, N>(tensor, step, access, vectorization);
        load_lanes::<T, S, A, N>(tensor, offset, access, vectorization)
    }
}

/// Prefetches the memory that [`load`] would read, if the lanes are contiguous.
#[cube]
pub(crate) fn prefetch_step<T: Float, S: Size, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(tensor, base, step, access, vectorization);
        prefetch::<T, S>(&tensor[place]);
    } else if comptime!(access.mode == LoadMode::Unaligned) {
        prefetch::<T, S>(
            &tensor[base + step_offset::<T, S, N>(tensor, step, access, vectorization)],
        );
    }
}

/// Lanes of a step that spans at most two segments of constant value.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct TwoSegments<A: Float> {
    pub(crate) here: Vector<A, One>,
    pub(crate) there: Vector<A, One>,
    /// Lanes up to the end of the first segment; at least the vector width if there is only one.
    left: usize,
}

/// Loads the values of a step's one or two segments. The second segment exists if the vector
/// reaches into it.
#[cube]
pub(crate) fn load_two_segments<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    #[comptime] access: AccessBlueprint,
) -> TwoSegments<A> {
    let first = access.row_dims;
    let innermost = comptime!(access.row_dims + access.col_dims - 1);
    let size = tensor.shape(innermost);
    let col = step * N::value();
    let segment = col / size;
    let left = size - col % size;
    let next = segment + select(left < N::value(), 1usize, 0usize);
    let here = base + decode::<T, S>(tensor, segment, first, innermost, false);
    let there = base + decode::<T, S>(tensor, next, first, innermost, false);
    TwoSegments::<A> {
        here: Vector::new(A::cast_from(tensor[here].extract(0usize))),
        there: Vector::new(A::cast_from(tensor[there].extract(0usize))),
        left,
    }
}

#[cube]
impl<A: Float> TwoSegments<A> {
    /// Expands the two values to the lanes of a vector.
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

/// Loads lanes from `offset` on, one element each. Vector loads, segments and [row
/// scalars](load_of_rows) take other paths.
#[cube]
fn load_lanes<T: Float, S: Size, A: Float, N: Size>(
    tensor: &Tensor<Vector<T, S>>,
    offset: usize,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) -> Vector<A, N> {
    match comptime!(access.mode) {
        LoadMode::Vector
        | LoadMode::PackedHalf2
        | LoadMode::PackedByte4
        | LoadMode::Broadcast
        | LoadMode::Segments
        | LoadMode::RowScalar => Vector::<A, N>::new(A::cast_from(tensor[offset].extract(0usize))),
        LoadMode::Unaligned => {
            let mut value = Vector::<T, N>::empty();
            #[unroll]
            for lane in 0..N::value() {
                value.insert(lane, tensor[offset + lane].extract(0usize));
            }
            Vector::<A, N>::cast_from(value)
        }
        LoadMode::Gather => {
            let stride = lane_stride::<T, S>(tensor, access, vectorization);
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

/// Loads one scalar for each row from `first` on, at `ahead` elements behind its start.
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
        let place =
            ahead + row_offset::<T, S>(tensor, first + lane, access, Vectorization::Parallel);
        value.insert(lane, A::cast_from(tensor[place].extract(0usize)));
    }
    value
}

/// Stores one step of a row that starts at `base`.
#[cube]
pub(crate) fn store<T: Float, S: Size, A: Float, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    value: Vector<A, N>,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) {
    if comptime!(access.mode == LoadMode::Vector) {
        let place = vector_place::<T, S, N>(&*tensor, base, step, access, vectorization);
        let value = Vector::<T, S>::cast_from(value);
        if comptime!(access.nontemporal) {
            store_nontemporal::<T, S, S>(&mut tensor[place], value);
        } else {
            tensor[place] = value;
        }
    } else if comptime!(access.mode == LoadMode::PackedHalf2) {
        let place = vector_place::<T, S, N>(&*tensor, base, step, access, vectorization);
        tensor[place] = Vector::reinterpret(pack::<A, S, N>(value));
    } else if comptime!(
        access.mode == LoadMode::Unaligned && access.nontemporal && !access.has_tail()
    ) {
        // The segment has been shifted so that its vectors are aligned.
        let offset = base + step_offset::<T, S, N>(&*tensor, step, access, vectorization);
        store_nontemporal::<T, S, N>(&mut tensor[offset], Vector::<T, N>::cast_from(value));
    } else {
        let offset = base + step_offset::<T, S, N>(&*tensor, step, access, vectorization);
        store_lanes::<T, S, A, N>(tensor, offset, value, access, vectorization);
    }
}

/// Stores the words of a step's codes. The tensor's elements are words, and `base` counts codes.
#[cube]
pub(crate) fn store_words<T: Float, S: Size, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    words: Vector<u32, S>,
    #[comptime] access: AccessBlueprint,
) {
    let place = vector_place::<T, S, N>(&*tensor, base, step, access, Vectorization::Parallel);
    tensor[place] = Vector::reinterpret(words);
}

/// Stores one step to a tensor whose vectors have a quarter of its lanes: `lanes` of them.
#[cube]
pub(crate) fn store_quarters<T: Float, S: Size, A: Float, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    base: usize,
    step: usize,
    value: Vector<A, N>,
    #[comptime] lanes: usize,
    #[comptime] access: AccessBlueprint,
) {
    let place = vector_place::<T, S, N>(&*tensor, base, step, access, Vectorization::Parallel);
    #[unroll]
    for quarter in 0..CODES_PER_WORD {
        let mut part = Vector::<T, S>::empty();
        #[unroll]
        for lane in 0..lanes {
            let from = comptime!(quarter * lanes + lane);
            part.insert(lane, T::cast_from(value.extract(from)));
        }
        tensor[place * CODES_PER_WORD + quarter] = part;
    }
}

/// Rounds a step to the element type of a tensor, as [`store`] does.
#[cube]
pub(crate) fn round_to_stored<T: Float, S: Size, A: Float, N: Size>(
    value: Vector<A, N>,
    #[comptime] access: AccessBlueprint,
) -> Vector<A, N> {
    if comptime!(access.mode == LoadMode::PackedHalf2) {
        unpack::<A, S, N>(pack::<A, S, N>(value))
    } else {
        Vector::<A, N>::cast_from(Vector::<T, N>::cast_from(value))
    }
}

/// Stores lanes from `offset` on, one element each. Vector stores take another path.
#[cube]
fn store_lanes<T: Float, S: Size, A: Float, N: Size>(
    tensor: &mut Tensor<Vector<T, S>>,
    offset: usize,
    value: Vector<A, N>,
    #[comptime] access: AccessBlueprint,
    #[comptime] vectorization: Vectorization,
) {
    match comptime!(access.mode) {
        LoadMode::Unaligned => {
            let value = Vector::<T, N>::cast_from(value);
            #[unroll]
            for lane in 0..N::value() {
                tensor[offset + lane] = Vector::<T, S>::new(value.extract(lane));
            }
        }
        // Outputs are never broadcast, so `Splat` has one lane here.
        LoadMode::Vector
        | LoadMode::PackedHalf2
        | LoadMode::PackedByte4
        | LoadMode::Broadcast
        | LoadMode::Segments
        | LoadMode::RowScalar
        | LoadMode::Gather => {
            let width = N::value();
            let stride = if comptime!(width > 1) {
                lane_stride::<T, S>(&*tensor, access, vectorization)
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

/// [`row_offset`] of an optional tensor; 0 if it is absent.
#[cube]
pub(crate) fn optional_row<T: Float, S: Size>(
    tensor: &Optional<T, S>,
    row: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] vectorization: Vectorization,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        row_offset::<T, S>(tensor, row, comptime!(access.unwrap()), vectorization)
    } else {
        0usize.runtime()
    }
}

/// [`row_start`] of an optional tensor; 0 if it is absent.
#[cube]
pub(crate) fn optional_start<T: Float, S: Size>(
    tensor: &Optional<T, S>,
    row: usize,
    cols: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] vectorization: Vectorization,
) -> usize {
    if comptime!(access.is_some()) {
        let tensor = tensor.as_ref().unwrap();
        row_start::<T, S>(tensor, row, cols, comptime!(access.unwrap()), vectorization)
    } else {
        0usize.runtime()
    }
}
