//! Which axis vectors run along and how wide they are.

use super::task::Task;
use super::{AccessBlueprint, Hardware, Knobs, Lanes, LoadMode, Strategy};
use crate::{Access, DType, Dim};

/// How many times the lanes of vectors that divide a row others must have, to be worth an end of their own. Measured
/// with AVX-512: of twice the lanes rows of 1000 floats take 0.8 of the time, of 392 as long, of 40 halves 1.4 times.
const WORTH_AN_END: usize = 4;

/// Registers of rows side by side where those are not a multiple of a vector: the more, the more of them are there twice.
/// Measured with AVX-512, layer norm over channels of maps of 14 x 14 and 7 x 7, forward, beside the widest vectors that
/// divide them, of four rows and one: two registers take 0.5 to 0.7 and 0.1 to 0.2 of the time, one 0.5 to 0.8 and 0.12
/// to 0.26, four 0.6 to 1.2 and 0.1 to 0.28; in maps of 28 x 28 four have more to do than one that divides them.
const REGISTERS_OF_ENDS: usize = 2;

/// What share of the widest vectors' lanes those must have at least that go on from one run of a parameter to the next,
/// for which it is read twice, and more than how many times those of vectors that do not. Measured with AVX-512, group
/// norm over maps of 7 x 7, beside one element at a time: vectors of all lanes take 0.5 to 0.7 of the time, of half of
/// them 0.85, of a quarter 1.25, of an eighth 1.5 to 1.8 times; on Mesa's driver of all lanes 0.7 to 1, of half 1, of a
/// quarter 1.2 to 1.4. On an H200 batch norm by given statistics of bfloat16 in maps of 14 x 14 takes 0.8 of the time
/// in vectors of four beside eight.
const WORTH_RUNS: usize = 2;

/// What vectors are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors {
    pub lanes: Lanes,
    pub width: usize,
    /// Columns that lie side by side, or rows where vectors lie along those.
    pub run: usize,
    /// Whether vectors do not divide a run: the last one of it ends with it.
    pub ragged: bool,
    /// Elements of a row.
    pub cols: usize,
}

/// The axis that the input is contiguous along, and the widest vector that fits every tensor; or one that fits it
/// but for an end, where that is much wider.
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
        (Some(1), _) => Lanes::Columns,
        (_, Some(1)) => Lanes::Rows,
        _ => Lanes::Columns,
    };
    let run_of_input = lane_dims(input, lanes).last().map_or(1, |dim| dim.size);
    let widest = match lanes {
        Lanes::Columns => hardware.widest_vector(task.dtype.size()),
        // Units that share rows have shared memory for the usual vectors.
        Lanes::Rows if !is_of_units(knobs) => hardware.widest_of_rows(task.dtype, 1),
        Lanes::Rows => hardware.widest_of_rows(task.dtype, run_of_input),
    };
    let widest = match knobs.vector {
        Some(wanted) => widest.min(1 << wanted.max(1).ilog2()),
        None => widest,
    };
    // Every tensor has the lanes within one dimension, and the input takes them in one access. A
    // residual that repeats a row is as good as one that does not; a parameter at a stride costs its
    // own gather only, and of one that is a number for each row each lane finds its own.
    let divides = |access: &Access, vector: usize| {
        let dim = lane_dims(access, lanes).last();
        dim.is_none_or(|dim| dim.size % vector == 0)
    };
    let loads = |vector: usize| match mode(input, lanes, vector) {
        LoadMode::Vector => true,
        // A CPU's compiler makes one access of them.
        LoadMode::Adjacent => hardware.cpu_cores.is_some(),
        LoadMode::Pairs
        | LoadMode::Splat
        | LoadMode::Runs
        | LoadMode::OfRows
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
    // Sums of columns have a place for each lane of each step, of which none may be there twice; where lanes are rows
    // those sums take a launch of their own. What is joined of strands has a place for each row.
    let may_be_ragged = hardware.cpu_cores.is_some()
        && (task.column_sums == 0 || lanes == Lanes::Rows)
        && task.strands == 1
        && is_of_units(knobs);
    let run_of_all = match may_be_ragged {
        true => run(input, everyone.clone(), lanes),
        false => None,
    };
    if let Some(run) = run_of_all {
        let (widest, longest) = match lanes {
            // At least one vector in front of the last.
            Lanes::Columns => (widest, run / 2),
            Lanes::Rows => {
                let of_register = hardware.widest_vector(task.dtype.accumulation().size());
                (widest.min(REGISTERS_OF_ENDS * of_register), run)
            }
        };
        let wide = widest.min(1 << longest.max(1).ilog2());
        if wide >= WORTH_AN_END * width {
            return Vectors {
                lanes,
                width: wide,
                run,
                ragged: true,
                cols: task.cols,
            };
        }
    }
    Vectors {
        lanes,
        width,
        run: run_of_input,
        ragged: false,
        cols: task.cols,
    }
}

/// Steps of a run of columns along which every parameter is one number.
pub(super) fn run_of_params<'a>(
    params: impl Iterator<Item = &'a Access>,
    vectors: Vectors,
) -> Option<usize> {
    let mut runs = params.filter_map(|access| access.col.last());
    let first = runs.next()?;
    let is_alike = |dim: &Dim| dim.stride == 0 && dim.size == first.size;
    let is_whole = vectors.ragged || first.size % vectors.width == 0;
    let fits = vectors.lanes == Lanes::Columns && is_alike(first) && runs.all(is_alike) && is_whole;
    fits.then(|| first.size.div_ceil(vectors.width))
}

/// Whether each unit has a row or a part of one for itself.
fn is_of_units(knobs: Knobs) -> bool {
    matches!(
        knobs.strategy,
        None | Some(Strategy::Unit | Strategy::Split)
    )
}

/// Columns that lie side by side in every tensor, or are one element again and again. Where lanes are rows, those that
/// lie side by side in the input, and none of which another tensor has elsewhere than the one before and a stride.
fn run<'a>(
    input: &Access,
    everyone: impl Iterator<Item = &'a Access>,
    lanes: Lanes,
) -> Option<usize> {
    let run = lane_dims(input, lanes).last()?;
    let is_alike = |access: &Access| match lane_dims(access, lanes).last() {
        None => true,
        // A row is found by its number, a column by the run that it is in.
        Some(dim) if lanes == Lanes::Rows => dim.size % run.size == 0,
        Some(dim) => dim.size == run.size && dim.stride <= 1,
    };
    let fits = run.stride == 1 && everyone.into_iter().all(is_alike);
    fits.then_some(run.size)
}

pub(super) fn blueprint(access: &Access, vectors: Vectors) -> AccessBlueprint {
    let ragged = vectors.ragged && vectors.lanes == Lanes::Columns;
    let is_next = |dim: &Dim| dim.stride == vectors.cols;
    AccessBlueprint {
        row_dims: access.row.len(),
        col_dims: access.col.len(),
        mode: match mode(access, vectors.lanes, vectors.width) {
            // The last one of a run starts anywhere.
            LoadMode::Vector if vectors.ragged => LoadMode::Adjacent,
            // And none goes on beyond it.
            LoadMode::Runs if ragged => LoadMode::Splat,
            mode => mode,
        },
        ragged,
        end_to_end: vectors.lanes == Lanes::Columns
            && !ragged
            && matches!(access.row.as_slice(), [dim] if is_next(dim)),
        adjacent_columns: vectors.lanes == Lanes::Rows
            && access.col.last().is_some_and(|dim| dim.stride == 1),
        past_caches: false,
    }
}

/// Halves that a software driver would load and store one by one come in pairs, where all tensors of a kernel's that
/// have one dtype are accessed in whole vectors: a kernel has one type for them.
pub(super) fn pair<const N: usize>(
    dtype: DType,
    vectors: Vectors,
    hardware: &Hardware,
    tensors: [Option<&mut AccessBlueprint>; N],
) {
    let mut tensors: Vec<_> = tensors.into_iter().flatten().collect();
    let are_vectors = tensors.iter().all(|access| access.mode == LoadMode::Vector);
    if dtype == DType::F16 && hardware.is_software() && vectors.width > 1 && are_vectors {
        for access in &mut tensors {
            access.mode = LoadMode::Pairs;
        }
    }
}

fn mode(access: &Access, lanes: Lanes, vector: usize) -> LoadMode {
    let Some((innermost, outer)) = lane_dims(access, lanes).split_last() else {
        return LoadMode::Splat;
    };
    let others = match lanes {
        Lanes::Columns => &access.row,
        Lanes::Rows => &access.col,
    };
    // A vector access starts at a multiple of its width, wherever the other indices stand.
    let is_aligned = outer
        .iter()
        .chain(others)
        .all(|dim| dim.stride % vector == 0);
    match innermost.stride {
        0 if is_of_runs(access, lanes, vector) => LoadMode::Runs,
        0 if is_of_rows(access, lanes, vector) => LoadMode::OfRows,
        0 => LoadMode::Splat,
        1 if is_aligned => LoadMode::Vector,
        1 => LoadMode::Adjacent,
        _ => LoadMode::Gather,
    }
}

/// Whether a tensor is one number along runs of columns that vectors do not divide, but are no longer than.
fn is_of_runs(access: &Access, lanes: Lanes, vector: usize) -> bool {
    let innermost = access.col.last();
    let runs = innermost.filter(|dim| dim.stride == 0 && dim.size >= vector);
    lanes == Lanes::Columns && runs.is_some_and(|dim| dim.size % vector != 0)
}

/// Whether a tensor is one number all along a row, the same for several rows that vectors do not divide.
fn is_of_rows(access: &Access, lanes: Lanes, vector: usize) -> bool {
    let innermost = access.row.last();
    let repeats = innermost.is_some_and(|dim| dim.stride == 0 && dim.size % vector != 0);
    lanes == Lanes::Rows && access.col.is_empty() && repeats
}

fn lane_dims(access: &Access, lanes: Lanes) -> &[Dim] {
    match lanes {
        Lanes::Columns => &access.col,
        Lanes::Rows => &access.row,
    }
}
