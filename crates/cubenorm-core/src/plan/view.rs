//! The view of a problem (whole rows or segments) that suits a device.

use super::backward::sums_segments;
use super::blueprint::Staging;
use super::combine::between_launches;
use super::hardware::Hardware;
use super::knobs::{Knobs, StrategyChoice};
use super::planner;
use super::schedule::Schedule;
use super::strategy::Strategy;
use super::team::Team;
use crate::backward::{BackwardDesc, BackwardProblem, ParamSums};
use crate::desc::NormDesc;
use crate::dtype::DType;
use crate::error::NormError;
use crate::problem::{NormProblem, Rows, Segments};

/// Minimum bytes of a group's adjacent channels for whole rows; with less, segments are faster.
/// Channels-last group norm, bf16, H100, % of copy bandwidth: 21 with 8 bytes, 42 with 16, 79 with
/// 32; segments: 48 to 60.
const LEAST_BESIDE: usize = 32;

/// The same if a cluster of cubes shares the row.
/// Groups of 10 and 20 channels f16 H200, SiLU, segments -> clusters: 1.32x to 1.50x faster.
const LEAST_BESIDE_IN_CLUSTER: usize = 16;

/// Most bytes of a row's adjacent elements that are split into segments; longer parts fill several
/// loads.
/// 80 to 320 bytes AVX-512, channels-last group norm, whole rows -> segments: 1.25x to 2.5x faster.
const MOST_BESIDE: usize = 320;

/// Bytes and minimum lanes of a load. Its lanes must divide the adjacent elements of all rows.
const LOAD: usize = 16;
const LEAST_LANES: usize = 4;

/// Bytes of a long enough row if nothing is reduced: one vector for each unit of a GPU plane. Batch
/// norm with provided statistics, pitched 56 x 56 f16, H100, % of copy bandwidth: 17 -> 87.
const LONG_ENOUGH: usize = 512;

/// Elements that every vector width divides.
const WHOLE: usize = 16;

/// The canonical form of a description for a device: [`NormDesc::problem`], with four exceptions.
///
/// - Nothing reduced, GPU: rows are joined if they are short or if parameters are constant along
///   few elements, because units share rows.
/// - Nothing reduced, f16/bf16 on a CPU: a row holds the elements of one parameter value, such as a
///   channel of a channels-last tensor, if a core processes a tile of rows. The reciprocal
///   deviation is computed once per row, not per element.
/// - Rows that consist of [segments](NormProblem::segments) are split into them if this is faster.
///   They stay whole if a plan stages whole rows and so reads them once, or if the choice forces a
///   plane or cube per row.
/// - CPU: columns are split into segments of constant parameters, such as the channels of a group,
///   if this allows much wider vectors with a tail.
///
/// # Errors
///
/// As [`NormDesc::problem`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc, problem_on,
/// };
///
/// // Batch norm with running statistics; no vector divides the 7 x 7 feature maps.
/// let input = TensorDesc::contiguous([8, 2048, 7, 7], DType::F32);
/// let channel = TensorDesc::contiguous([1, 2048, 1, 1], DType::F32);
/// let [mean, variance] = [channel.clone(), channel];
/// let desc = NormDesc::new(input, [0, 2, 3], Statistics::Provided { mean, variance });
/// let choice = StrategyChoice::Inferred;
/// assert_eq!(problem_on(&desc, &Hardware::cpu(8, 512), choice)?.cols, 7 * 7);
/// assert_eq!(problem_on(&desc, &Hardware::cuda(132), choice)?.cols, 2048 * 7 * 7);
/// # Ok::<(), cubenorm_core::NormError>(())
/// ```
pub fn problem_on(
    desc: &NormDesc,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<NormProblem, NormError> {
    let rows = match hardware.is_gpu() {
        true => Rows::Joined {
            least_bytes: LONG_ENOUGH,
            multiple: WHOLE,
        },
        false => Rows::Even,
    };
    let whole = desc.canonical(rows, &|_| false)?;
    let planned = choice.knobs().planned_groups;
    // Units of a plane or cube share whole rows.
    let shares_rows = matches!(
        choice.knobs().strategy,
        Some(Strategy::Plane | Strategy::Cube)
    );
    if shares_rows {
        return Ok(whole);
    }
    let is_half = desc.input.dtype.is_half();
    if hardware.cpu_cores.is_some() && is_half && !whole.statistics.reduces() {
        let of_params = desc.canonical(Rows::OfParams, &|_| false)?;
        let is_tiled = |it: Schedule| it.team.is_tile() && it.team.vector > 1;
        return Ok(
            match scheduled(&of_params, hardware, planned).is_some_and(is_tiled) {
                true => of_params,
                false => whole,
            },
        );
    }
    let bytes = desc.input.dtype.size();
    let in_segments = desc.canonical(rows, &|segments| suits_vectors(segments, bytes))?;
    if in_segments.segments == 1 {
        return Ok(cut_at_segments(whole, hardware, planned));
    }
    let schedules =
        scheduled(&whole, hardware, planned).zip(scheduled(&in_segments, hardware, planned));
    let Some((of_whole, of_segments)) = schedules else {
        return Ok(whole);
    };
    let whole_width = of_whole.team.vector;
    let beside = in_segments.segments * bytes;
    // Staged rows are read once.
    let reads_once = of_whole.staging != Staging::Reload
        && match of_whole.team.cluster_size() {
            1 => whole_width == hardware.widest_vector(bytes) && beside >= LEAST_BESIDE,
            _ => beside >= LEAST_BESIDE_IN_CLUSTER,
        };
    let is_narrower = of_segments.team.vector < whole_width;
    let pays = segments_pay(in_segments.segments, in_segments.cols, bytes, hardware);
    Ok(match reads_once || is_narrower || !pays {
        true => whole,
        false => in_segments,
    })
}

/// The analytic schedule of a problem, for its own groups or a number of them; `None` if it or the launch that combines segments has none.
fn scheduled(
    problem: &impl planner::Pass,
    hardware: &Hardware,
    planned_groups: Option<usize>,
) -> Option<Schedule> {
    let knobs = Knobs {
        planned_groups,
        ..Knobs::default()
    };
    let (work, schedule) = planner::schedule(problem, hardware, knobs).ok()?;
    if work.reduces && schedule.team.reduces_apart() {
        between_launches(&work, &schedule, 0, hardware).ok()?;
    }
    Some(schedule)
}

/// True if vectors may run along the adjacent segments of all rows.
fn suits_vectors(segments: &Segments, bytes: usize) -> bool {
    let lanes = (LOAD / bytes).max(LEAST_LANES);
    segments.count <= MOST_BESIDE / bytes && segments.beside.is_multiple_of(lanes)
}

/// Minimum ratio of the lanes of vectors with a tail per segment to the lanes of vectors that cross
/// segments.
/// 14 x 14 f16 AVX-512, group norm, equal lanes: 1.35x faster; f32: up to 1.4x slower.
const fn worth_a_cut(dtype: DType) -> usize {
    if dtype.is_half() { 1 } else { 2 }
}

/// The same with columns split into segments of constant parameters, if this is faster on a CPU.
fn cut_at_segments(whole: NormProblem, hardware: &Hardware, planned: Option<usize>) -> NormProblem {
    let is_cpu = hardware.cpu_cores.is_some();
    let Some(cut) = whole.cut_at_segments().filter(|_| is_cpu) else {
        return whole;
    };
    let team = |problem: &NormProblem| {
        let schedule = scheduled(problem, hardware, planned)?;
        // Staged rows are read once.
        (schedule.staging == Staging::Reload).then_some(schedule.team)
    };
    match cut_pays(whole.dtype, team(&whole), team(&cut)) {
        true => cut,
        false => whole,
    }
}

/// True if splitting is faster, judged by the teams that reload rows.
fn cut_pays(dtype: DType, of_whole: Option<Team>, of_cut: Option<Team>) -> bool {
    let (Some(of_whole), Some(of_cut)) = (of_whole, of_cut) else {
        return false;
    };
    of_cut.has_tail() && of_cut.vector >= worth_a_cut(dtype) * of_whole.vector
}

/// The backward problem of the input's gradient for a device, with sums from [`sums_on`]:
/// [`BackwardDesc::input_problem`], except that a CPU may split columns into segments of constant
/// parameters.
///
/// # Errors
///
/// As [`BackwardDesc::input_problem`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, BackwardDesc, Hardware, NormDesc, NormError, Statistics, TensorDesc, input_problem_on,
///     sums_on,
/// };
///
/// // Groups of two channels; no vector divides the 73 x 73 feature maps.
/// let input = TensorDesc::contiguous([16, 32, 2, 73 * 73], DType::F32);
/// let norm = NormDesc::new(input, [2, 3], Statistics::MeanVariance)
///     .with_scale(TensorDesc::contiguous([32, 2, 1], DType::F32));
/// let desc = BackwardDesc::new(norm);
/// let column_dims = |hardware: &Hardware| -> Result<usize, NormError> {
///     let problem = input_problem_on(&desc, sums_on(&desc, hardware), hardware)?;
///     Ok(problem.input.col.len())
/// };
/// assert_eq!(column_dims(&Hardware::cpu(8, 512))?, 2);
/// assert_eq!(column_dims(&Hardware::cuda(132))?, 1);
/// # Ok::<(), NormError>(())
/// ```
pub fn input_problem_on(
    desc: &BackwardDesc,
    sums: ParamSums,
    hardware: &Hardware,
) -> Result<BackwardProblem, NormError> {
    let whole = desc.input_problem(sums)?;
    let is_cpu = hardware.cpu_cores.is_some();
    let Some(cut) = whole.cut_at_segments().filter(|_| is_cpu) else {
        return Ok(whole);
    };
    let schedules = [&whole, &cut].map(|problem| scheduled(problem, hardware, None));
    let sums = |problem: &BackwardProblem, schedule: Option<Schedule>| {
        schedule.map(|schedule| sums_segments(problem, &schedule, hardware))
    };
    // Otherwise a separate launch reads everything again for the sums.
    let fuses_sums =
        sums(&cut, schedules[1]) == Some(true) && sums(&whole, schedules[0]) == Some(false);
    let [of_whole, of_cut] = schedules.map(|schedule| schedule.map(|schedule| schedule.team));
    Ok(
        match fuses_sums || cut_pays(whole.dtype, of_whole, of_cut) {
            true => cut,
            false => whole,
        },
    )
}

/// The source of the parameter gradients on a device: channel segments if there are any and they
/// are faster, else [`BackwardDesc::param_sums`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, BackwardDesc, Hardware, Layout, NormDesc, ParamSums, Statistics, TensorDesc, sums_on,
/// };
///
/// // Channels-last: two groups of four channels, 900 spatial positions.
/// let layout = Layout::strided([1, 2, 4, 900], [7200, 4, 1, 8]);
/// let norm = NormDesc::new(TensorDesc::new(layout, DType::F32), [2, 3], Statistics::MeanVariance)
///     .with_scale(TensorDesc::contiguous([2, 4, 1], DType::F32));
/// let desc = BackwardDesc::new(norm);
/// assert_eq!(sums_on(&desc, &Hardware::cuda(132)), ParamSums::Segments);
/// ```
pub fn sums_on(desc: &BackwardDesc, hardware: &Hardware) -> ParamSums {
    let bytes = desc.norm.input.dtype.size();
    match desc.sums_of_segments() {
        Some((segments, cols))
            if suits_vectors(&segments, bytes)
                && segments_pay(segments.count, cols, bytes, hardware) =>
        {
            ParamSums::Segments
        }
        _ => desc.param_sums(),
    }
}

/// True if segments are long enough to pay for per-lane coefficients.
/// 8 samples of 7 x 7 f32 AVX-512, batch norm, whole rows -> segments: 1.57x slower; 83: 1.05x.
fn segments_pay(segments: usize, cols: usize, bytes: usize, hardware: &Hardware) -> bool {
    hardware.cpu_cores.is_none() || cols >= segments * bytes
}
