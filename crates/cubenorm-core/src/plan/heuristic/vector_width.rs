//! Vector width: the axis that vectors run along and their lanes.

use super::cpu_vulkan;
use super::load_mode::{is_of_rows, is_of_segments, lane_dims, mode};
use crate::plan::blueprint::LoadMode;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::Knobs;
use crate::plan::strategy::Strategy;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;
use crate::problem::{Access, Dim};
use crate::quantization::CODES_PER_WORD;

/// Minimum ratio of lanes for tail vectors to replace vectors that divide a row.
/// 1,000 f32 AVX-512, vectors that divide -> twice the lanes: 1.25x faster; 40 f16: 1.4x slower.
const WORTH_A_TAIL: usize = 4;

/// Most registers per vector of adjacent rows with a tail; wider vectors recompute more rows.
/// 14 x 14 AVX-512, layer norm over channels, dividing -> two registers: 1.43x to 2x faster.
const REGISTERS_OF_TAIL: usize = 2;

/// Minimum advantage of vectors that cross parameter segments, since they read the parameter twice.
/// They need at least 1/2 of the widest vector's lanes, and more than twice the lanes of vectors
/// that do not cross.
/// 7 x 7 AVX-512, group norm, one lane -> half of all: 1.18x faster; a quarter: 1.25x slower.
const WORTH_SEGMENTS: usize = 2;

/// Vectors of adjacent rows that fit a core's registers: four registers each if there are 32.
/// Batch norm, channels-last f32 AVX-512, one register -> four: 1.22x to 3.2x faster.
const VECTORS_OF_ROWS: usize = 8;

/// The tensors of a problem.
pub(in crate::plan) struct Tensors<'a> {
    pub input: &'a Access,
    /// Tensors with one element per input element.
    pub whole: Vec<&'a Access>,
    /// Tensors that broadcast to the input.
    pub params: Vec<&'a Access>,
}

/// Chooses the axis along which the input is contiguous and the widest vector that suits every
/// tensor. A much wider vector with a tail is preferred.
pub(in crate::plan) fn choose(
    work: Workload,
    tensors: &Tensors<'_>,
    hardware: &Hardware,
) -> Workload {
    let input = tensors.input;
    let step = |dims: &[Dim]| dims.last().map(|dim| dim.stride);
    let lanes = match (step(&input.col), step(&input.row)) {
        // Lanes are the codes of a word.
        _ if work.quantizes => Vectorization::Parallel,
        (Some(1), _) => Vectorization::Parallel,
        (_, Some(1)) => Vectorization::Perpendicular,
        _ => Vectorization::Parallel,
    };
    let segment_of_input = lane_dims(input, lanes).last().map_or(1, |dim| dim.size);
    let widest = match lanes {
        Vectorization::Parallel => hardware.widest_vector(work.dtype.size()),
        // Units that share rows have shared memory for vectors of the usual width only.
        Vectorization::Perpendicular if !is_of_units(work.knobs) => {
            widest_of_rows(&work, 1, hardware)
        }
        Vectorization::Perpendicular => widest_of_rows(&work, segment_of_input, hardware),
    };
    let widest = match work.knobs.vector {
        Some(wanted) => widest.min(1 << wanted.max(1).ilog2()),
        None => widest,
    };
    let least = match work.quantizes {
        true => CODES_PER_WORD,
        false => 1,
    };
    let widths = [least, widest.max(least)];
    let plain = widest_that_fits(tensors, lanes, widths, false, hardware);
    let over_segments = widest_that_fits(tensors, lanes, widths, true, hardware);
    let width =
        match over_segments > WORTH_SEGMENTS * plain && over_segments * WORTH_SEGMENTS >= widest {
            true => over_segments,
            false => plain,
        };
    match with_tail(&work, tensors, lanes, widest, hardware) {
        Some((wide, segment)) if wide >= WORTH_A_TAIL * width => {
            work.in_vectors(lanes, wide, segment, true)
        }
        _ => work.in_vectors(lanes, width, segment_of_input, false),
    }
}

/// Lanes of the widest vector along adjacent rows. A CPU core moves to another cache line at each
/// step, so it processes several adjacent rows together.
fn widest_of_rows(work: &Workload, segment: usize, hardware: &Hardware) -> usize {
    let of_load = hardware.widest_vector(work.dtype.size());
    let bits = hardware.register_bits as usize / VECTORS_OF_ROWS;
    let of_registers = (bits / (8 * work.accumulation())).max(1);
    match hardware.cpu_cores {
        Some(_) => of_load.max((1 << of_registers.ilog2()).min(hardware.max_vector)),
        None => of_load.max(cpu_vulkan::widest_of_rows(segment, hardware).unwrap_or(1)),
    }
}

/// Lanes of the widest vector within these widths, that every tensor suits; the least if none does.
///
/// In every tensor a vector's lanes are within one dimension, and the input loads them in one
/// access. A broadcast residual qualifies too. A strided parameter costs only its own gather. A
/// parameter that is constant along rows is looked up per lane. `over_segments` allows vectors that
/// cross segments of constant parameters.
fn widest_that_fits(
    tensors: &Tensors<'_>,
    lanes: Vectorization,
    [least, widest]: [usize; 2],
    over_segments: bool,
    hardware: &Hardware,
) -> usize {
    let loads = |vector: usize| match mode(tensors.input, lanes, vector) {
        LoadMode::Vector => true,
        // A CPU compiler merges them into one access.
        LoadMode::Unaligned => hardware.cpu_cores.is_some(),
        LoadMode::PackedHalf2
        | LoadMode::PackedByte4
        | LoadMode::Broadcast
        | LoadMode::Segments
        | LoadMode::RowScalar
        | LoadMode::Gather => false,
    };
    let fits = |access: &Access, vector: usize| {
        let dim = lane_dims(access, lanes).last();
        let divides = dim.is_none_or(|dim| dim.size % vector == 0);
        divides || over_segments && is_of_segments(access, lanes, vector)
    };
    let halvings = (0..=(widest / least).ilog2()).map(|halvings| widest >> halvings);
    let mut fitting = halvings.filter(|&vector| {
        let fits_param =
            |access: &Access| fits(access, vector) || is_of_rows(access, lanes, vector);
        let fits_all = tensors.whole.iter().all(|access| fits(access, vector))
            && tensors.params.iter().all(|access| fits_param(access));
        vector == least || fits_all && loads(vector)
    });
    fitting.next().unwrap_or(least)
}

/// Lanes of vectors with a tail and the length of their segments; `None` unless a CPU's units own
/// rows or parts of them.
///
/// Column sums have a slot for each lane of each step, so tail vectors must not overlap there.
/// Vectors along rows are exempt: a separate launch computes their column sums. Combined segments
/// have a slot for each row.
fn with_tail(
    work: &Workload,
    tensors: &Tensors<'_>,
    lanes: Vectorization,
    widest: usize,
    hardware: &Hardware,
) -> Option<(usize, usize)> {
    let may_have_tail = hardware.cpu_cores.is_some()
        && (work.column_sums == 0 || lanes == Vectorization::Perpendicular)
        && work.segments == 1
        && !work.rotates
        && !work.quantizes
        && is_of_units(work.knobs);
    let segment = segment_len(tensors, lanes).filter(|_| may_have_tail)?;
    let (widest, longest) = match lanes {
        // At least one full vector before the tail.
        Vectorization::Parallel => (widest, segment / 2),
        Vectorization::Perpendicular => {
            let of_register = hardware.widest_vector(work.accumulation());
            (widest.min(REGISTERS_OF_TAIL * of_register), segment)
        }
    };
    Some((widest.min(1 << longest.max(1).ilog2()), segment))
}

/// Minimum steps of a segment for loading its parameters once. A separate loop over fewer steps
/// costs more. It also counts towards lavapipe's limit on loop iterations.
pub(super) const LEAST_SEGMENT: usize = 4;

/// Steps of a column segment along which every parameter is constant; `None` if it is too short.
pub(in crate::plan) fn steps_of_segment<'a>(
    params: impl Iterator<Item = &'a Access>,
    work: &Workload,
) -> Option<usize> {
    let mut segments = params.filter_map(|access| access.col.last());
    let first = segments.next()?;
    let is_alike = |dim: &Dim| dim.stride == 0 && dim.size == first.size;
    let is_whole = work.has_tail || first.size % work.vector == 0;
    let fits = work.lanes == Vectorization::Parallel
        && is_alike(first)
        && segments.all(is_alike)
        && is_whole;
    let segment = first.size.div_ceil(work.vector);
    (fits && segment >= LEAST_SEGMENT).then_some(segment)
}

/// True if each unit owns a row or a part of one.
fn is_of_units(knobs: Knobs) -> bool {
    matches!(
        knobs.strategy,
        None | Some(Strategy::Unit | Strategy::Split)
    )
}

/// Length of the column segment that is contiguous, or one repeated element, in every tensor. If
/// lanes are rows, length of the input's segment of adjacent rows, if it divides the row dimension
/// of every other tensor.
fn segment_len(tensors: &Tensors<'_>, lanes: Vectorization) -> Option<usize> {
    let segment = lane_dims(tensors.input, lanes).last()?;
    let is_alike = |access: &&Access| match lane_dims(access, lanes).last() {
        None => true,
        // Rows are addressed by their index, columns by their segment.
        Some(dim) if lanes == Vectorization::Perpendicular => dim.size % segment.size == 0,
        Some(dim) => dim.size == segment.size && dim.stride <= 1,
    };
    let mut everyone = tensors.whole.iter().chain(&tensors.params);
    let fits = segment.stride == 1 && everyone.all(is_alike);
    fits.then_some(segment.size)
}
