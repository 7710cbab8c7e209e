//! The axis and the width of vectors.

use super::task::Task;
use super::{AccessBlueprint, Hardware, Knobs, LoadMode, Strategy, Vectorization};
use crate::{Access, DType, Dim};

/// Minimum ratio of lanes for tail vectors to replace vectors that divide a row. 1000 columns f32
/// AVX-512, twice the lanes: ratio 0.8; 40 columns f16: 1.4.
const WORTH_A_TAIL: usize = 4;

/// Most registers per vector of adjacent rows with a tail; wider vectors recompute more rows. Layer
/// norm over channels, 14 x 14, AVX-512, vs. vectors that divide: ratio 0.5 to 0.7 with two, 0.6 to
/// 1.2 with four.
const REGISTERS_OF_TAIL: usize = 2;

/// Minimum advantage of vectors that cross parameter segments, since they read the parameter twice.
/// They need at least 1/2 of the widest vector's lanes, and more than twice the lanes of vectors
/// that do not cross. Group norm, 7 x 7, AVX-512, vs. one lane: ratio 0.5 to 0.7 with all lanes,
/// 0.85 with half, 1.25 with a quarter.
const WORTH_RUNS: usize = 2;

/// The vectors of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors {
    pub lanes: Vectorization,
    pub width: usize,
    /// Length of a contiguous column segment, or of a segment of adjacent rows if vectors run along
    /// rows.
    pub run: usize,
    /// True if the length of a segment is not a multiple of the width: its tail vector ends with
    /// the segment.
    pub has_tail: bool,
    /// Elements of a row.
    pub cols: usize,
}

/// Chooses the axis along which the input is contiguous and the widest vector that suits every
/// tensor. A much wider vector with a tail is preferred.
pub(super) fn choose<'a>(
    task: &Task,
    input: &Access,
    whole: impl Iterator<Item = &'a Access> + Clone,
    params: impl Iterator<Item = &'a Access> + Clone,
    hardware: &Hardware,
    knobs: Knobs,
) -> Vectors {
    let everyone = whole.clone().chain(params.clone());
    let step = |dims: &[Dim]| dims.last().map(|dim| dim.stride);
    let lanes = match (step(&input.col), step(&input.row)) {
        (Some(1), _) => Vectorization::Parallel,
        (_, Some(1)) => Vectorization::Perpendicular,
        _ => Vectorization::Parallel,
    };
    let run_of_input = lane_dims(input, lanes).last().map_or(1, |dim| dim.size);
    let widest = match lanes {
        Vectorization::Parallel => hardware.widest_vector(task.dtype.size()),
        // Units that share rows have shared memory for vectors of the usual width only.
        Vectorization::Perpendicular if !is_of_units(knobs) => {
            hardware.widest_of_rows(task.dtype, 1)
        }
        Vectorization::Perpendicular => hardware.widest_of_rows(task.dtype, run_of_input),
    };
    let widest = match knobs.vector {
        Some(wanted) => widest.min(1 << wanted.max(1).ilog2()),
        None => widest,
    };
    // In every tensor a vector's lanes are within one dimension, and the input loads them in one
    // access. A broadcast residual qualifies too. A strided parameter costs only its own gather. A
    // parameter that is constant along rows is looked up per lane.
    let divides = |access: &Access, vector: usize| {
        let dim = lane_dims(access, lanes).last();
        dim.is_none_or(|dim| dim.size % vector == 0)
    };
    let loads = |vector: usize| match mode(input, lanes, vector) {
        LoadMode::Vector => true,
        // A CPU compiler merges them into one access.
        LoadMode::Unaligned => hardware.cpu_cores.is_some(),
        LoadMode::PackedHalf2
        | LoadMode::Broadcast
        | LoadMode::Segments
        | LoadMode::RowScalar
        | LoadMode::Gather => false,
    };
    let widest_of = |over_runs: bool| {
        let fits = |access: &Access, vector: usize| {
            divides(access, vector) || over_runs && is_of_runs(access, lanes, vector)
        };
        let halvings = (0..=widest.ilog2()).map(|halvings| widest >> halvings);
        let mut fitting = halvings.filter(|&vector| {
            let fits_param =
                |access: &Access| fits(access, vector) || is_of_rows(access, lanes, vector);
            let fits_all =
                whole.clone().all(|access| fits(access, vector)) && params.clone().all(fits_param);
            vector == 1 || fits_all && loads(vector)
        });
        fitting.next().unwrap_or(1)
    };
    let (plain, over_runs) = (widest_of(false), widest_of(true));
    let width = match over_runs > WORTH_RUNS * plain && over_runs * WORTH_RUNS >= widest {
        true => over_runs,
        false => plain,
    };
    // Column sums have a slot for each lane of each step, so tail vectors must not overlap there.
    // Vectors along rows are exempt: a separate launch computes their column sums. Combined
    // segments have a slot for each row.
    let may_have_tail = hardware.cpu_cores.is_some()
        && (task.column_sums == 0 || lanes == Vectorization::Perpendicular)
        && task.segments == 1
        && is_of_units(knobs);
    let run_of_all = match may_have_tail {
        true => run(input, everyone.clone(), lanes),
        false => None,
    };
    if let Some(run) = run_of_all {
        let (widest, longest) = match lanes {
            // At least one full vector before the tail.
            Vectorization::Parallel => (widest, run / 2),
            Vectorization::Perpendicular => {
                let of_register = hardware.widest_vector(task.dtype.accumulation().size());
                (widest.min(REGISTERS_OF_TAIL * of_register), run)
            }
        };
        let wide = widest.min(1 << longest.max(1).ilog2());
        if wide >= WORTH_A_TAIL * width {
            return Vectors {
                lanes,
                width: wide,
                run,
                has_tail: true,
                cols: task.cols,
            };
        }
    }
    Vectors {
        lanes,
        width,
        run: run_of_input,
        has_tail: false,
        cols: task.cols,
    }
}

/// Steps of a column segment along which every parameter is constant.
pub(super) fn run_of_params<'a>(
    params: impl Iterator<Item = &'a Access>,
    vectors: Vectors,
) -> Option<usize> {
    let mut runs = params.filter_map(|access| access.col.last());
    let first = runs.next()?;
    let is_alike = |dim: &Dim| dim.stride == 0 && dim.size == first.size;
    let is_whole = vectors.has_tail || first.size % vectors.width == 0;
    let fits = vectors.lanes == Vectorization::Parallel
        && is_alike(first)
        && runs.all(is_alike)
        && is_whole;
    fits.then(|| first.size.div_ceil(vectors.width))
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
fn run<'a>(
    input: &Access,
    everyone: impl Iterator<Item = &'a Access>,
    lanes: Vectorization,
) -> Option<usize> {
    let run = lane_dims(input, lanes).last()?;
    let is_alike = |access: &Access| match lane_dims(access, lanes).last() {
        None => true,
        // Rows are addressed by their index, columns by their segment.
        Some(dim) if lanes == Vectorization::Perpendicular => dim.size % run.size == 0,
        Some(dim) => dim.size == run.size && dim.stride <= 1,
    };
    let fits = run.stride == 1 && everyone.into_iter().all(is_alike);
    fits.then_some(run.size)
}

pub(super) fn blueprint(access: &Access, vectors: Vectors) -> AccessBlueprint {
    let has_tail = vectors.has_tail && vectors.lanes == Vectorization::Parallel;
    let is_next = |dim: &Dim| dim.stride == vectors.cols;
    AccessBlueprint {
        row_dims: access.row.len(),
        col_dims: access.col.len(),
        mode: match mode(access, vectors.lanes, vectors.width) {
            // The tail vector of a segment may be unaligned.
            LoadMode::Vector if vectors.has_tail => LoadMode::Unaligned,
            // No vector crosses into the next segment.
            LoadMode::Segments if has_tail => LoadMode::Broadcast,
            mode => mode,
        },
        has_tail,
        rows_packed: vectors.lanes == Vectorization::Parallel
            && !has_tail
            && matches!(access.row.as_slice(), [dim] if is_next(dim)),
        unit_stride: vectors.lanes == Vectorization::Perpendicular
            && access.col.last().is_some_and(|dim| dim.stride == 1),
        nontemporal: false,
    }
}

/// Packs f16 elements in pairs on a CPU Vulkan driver, which would load and store them one by one.
/// All tensors of one dtype must use whole vectors, because a kernel has one type for them.
pub(super) fn pair<const N: usize>(
    dtype: DType,
    vectors: Vectors,
    hardware: &Hardware,
    tensors: [Option<&mut AccessBlueprint>; N],
) {
    let mut tensors: Vec<_> = tensors.into_iter().flatten().collect();
    let are_vectors = tensors.iter().all(|access| access.mode == LoadMode::Vector);
    if dtype == DType::F16 && hardware.is_cpu_vulkan() && vectors.width > 1 && are_vectors {
        for access in &mut tensors {
            access.mode = LoadMode::PackedHalf2;
        }
    }
}

fn mode(access: &Access, lanes: Vectorization, vector: usize) -> LoadMode {
    let Some((innermost, outer)) = lane_dims(access, lanes).split_last() else {
        return LoadMode::Broadcast;
    };
    let others = match lanes {
        Vectorization::Parallel => &access.row,
        Vectorization::Perpendicular => &access.col,
    };
    // A vector access is aligned if all other strides are multiples of its width.
    let is_aligned = outer
        .iter()
        .chain(others)
        .all(|dim| dim.stride % vector == 0);
    match innermost.stride {
        0 if is_of_runs(access, lanes, vector) => LoadMode::Segments,
        0 if is_of_rows(access, lanes, vector) => LoadMode::RowScalar,
        0 => LoadMode::Broadcast,
        1 if is_aligned => LoadMode::Vector,
        1 => LoadMode::Unaligned,
        _ => LoadMode::Gather,
    }
}

/// True if a tensor is constant along column segments that are longer than a vector, but not a
/// multiple of it.
fn is_of_runs(access: &Access, lanes: Vectorization, vector: usize) -> bool {
    let innermost = access.col.last();
    let runs = innermost.filter(|dim| dim.stride == 0 && dim.size >= vector);
    lanes == Vectorization::Parallel && runs.is_some_and(|dim| dim.size % vector != 0)
}

/// True if a tensor is constant along rows, and repeats over a number of rows that vectors do not
/// divide.
fn is_of_rows(access: &Access, lanes: Vectorization, vector: usize) -> bool {
    let innermost = access.row.last();
    let repeats = innermost.is_some_and(|dim| dim.stride == 0 && dim.size % vector != 0);
    lanes == Vectorization::Perpendicular && access.col.is_empty() && repeats
}

fn lane_dims(access: &Access, lanes: Vectorization) -> &[Dim] {
    match lanes {
        Vectorization::Parallel => &access.col,
        Vectorization::Perpendicular => &access.row,
    }
}
