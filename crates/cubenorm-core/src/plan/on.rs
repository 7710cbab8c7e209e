//! Which problem a description comes to on a device: of whole rows, or of strands.

use super::{Hardware, Hold, Strategy, StrategyChoice, Team, plan_forward, plan_gradient};
use crate::problem::Rows;
use crate::{DType, GradientDesc, GradientProblem, NormDesc, NormError, NormProblem, ParamSums};

/// Bytes of a row's neighbours in memory that are worth a load by themselves. Measured on an H100, percent of a copy, group
/// norm of bfloat16 with channels last, whose rows units hold: 21 and 42 with 8 and 16 bytes, 79 with 32, 85 to 97 with
/// more; but 31 and 52 in vectors of 2 and 4, which divide 60 and 40. In strands 48 to 60.
const LEAST_BESIDE: usize = 32;

/// The canonical form of a description that a device is to run: that of [`NormDesc::problem`], but for four cases.
///
/// - Where nothing is reduced, rows are longer on a GPU, whose units share them: where they would be short, and where
///   parameters are one number along few elements.
/// - There, of halves on a CPU, they are what each number of the parameters belongs to, as the channels that are last in
///   memory are, where a core takes all of them side by side: a deviation is rooted and divided by once, not at each element.
/// - Rows that have [strands](NormProblem::strands) come as those where that pays. They come whole where a plan for whole
///   rows holds them and so reads them once, and where the choice forces units of a plane or cube to share a row.
/// - Columns of a CPU are cut where parameters change along them, such as those of a group at its channels, if vectors that end
///   with each such run are so much wider.
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
/// // Batch norm by running statistics, of maps of 7 x 7 that no vector divides.
/// let input = TensorDesc::contiguous([8, 2048, 7, 7], DType::F32);
/// let channel = TensorDesc::contiguous([1, 2048, 1, 1], DType::F32);
/// let [mean, variance] = [channel.clone(), channel];
/// let desc = NormDesc::new(input, [0, 2, 3], Statistics::Given { mean, variance });
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
        true => Rows::OfRuns,
        false => Rows::Even,
    };
    let whole = desc.canonical(rows, false)?;
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
        let of_params = desc.canonical(Rows::OfParams, false)?;
        let plan = plan_forward(&of_params, hardware, StrategyChoice::Inferred);
        let pays = plan.is_ok_and(|plan| {
            let team = plan.blueprint.team;
            team.side_by_side && team.vector > 1
        });
        return Ok(match pays {
            true => of_params,
            false => whole,
        });
    }
    let in_strands = desc.canonical(rows, true)?;
    if in_strands.strands == 1 {
        return Ok(cut_at_runs(whole, hardware));
    }
    let plan = |problem: &NormProblem| plan_forward(problem, hardware, StrategyChoice::Inferred);
    let (Ok(of_whole), Ok(of_strands)) = (plan(&whole), plan(&in_strands)) else {
        return Ok(whole);
    };
    let [whole_width, width] = [&of_whole, &of_strands].map(|plan| plan.blueprint.team.vector);
    let bytes = desc.input.dtype.size();
    // What is held is read once.
    let reads_once = of_whole.blueprint.hold != Hold::Reread
        && whole_width == hardware.widest_vector(bytes)
        && in_strands.strands * bytes >= LEAST_BESIDE;
    let pays = strands_pay(in_strands.strands, in_strands.cols, bytes, hardware);
    Ok(match reads_once || width < whole_width || !pays {
        true => whole,
        false => in_strands,
    })
}

/// How many times the lanes of vectors that go on from one run of a parameter to the next those must have that end with a run,
/// to be worth it, of floats and of halves. Measured with AVX-512, group norm: of as many lanes floats in maps of 25 x 34
/// and 14 x 14 take 1.0 to 1.4 times the time, halves in maps of 14 x 14 0.74; of twice as many halves in maps of 25 x 34
/// 0.52 to 0.61, floats in maps of 13 x 17 0.7. Maps of 73 x 73, two in a group, which no vector divides, take 0.44 of
/// the time of floats and 0.16 of that of halves.
const fn worth_a_cut(dtype: DType) -> usize {
    if dtype.is_half() { 1 } else { 2 }
}

/// The same with columns cut where parameters change along them, where that pays on a CPU.
fn cut_at_runs(whole: NormProblem, hardware: &Hardware) -> NormProblem {
    let is_cpu = hardware.cpu_cores.is_some();
    let Some(cut) = whole.cut_at_runs().filter(|_| is_cpu) else {
        return whole;
    };
    let plan = |problem: &NormProblem| {
        let plan = plan_forward(problem, hardware, StrategyChoice::Inferred).ok()?;
        // What is held is read once.
        (plan.blueprint.hold == Hold::Reread).then_some(plan.blueprint.team)
    };
    match cut_pays(whole.dtype, plan(&whole), plan(&cut)) {
        true => cut,
        false => whole,
    }
}

/// Whether it does, by the teams that would read rows again.
fn cut_pays(dtype: DType, of_whole: Option<Team>, of_cut: Option<Team>) -> bool {
    let (Some(of_whole), Some(of_cut)) = (of_whole, of_cut) else {
        return false;
    };
    of_cut.ragged && of_cut.vector >= worth_a_cut(dtype) * of_whole.vector
}

/// The problem of an input's gradient that a device is to run, with sums taken [as they are there](sums_on): that of
/// [`GradientDesc::input_problem`], but for columns of a CPU that are cut where parameters change along them.
///
/// # Errors
///
/// As [`GradientDesc::input_problem`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, GradientDesc, Hardware, NormDesc, NormError, Statistics, TensorDesc, input_problem_on,
///     sums_on,
/// };
///
/// // Groups of two channels, in maps of 73 x 73 that no vector divides.
/// let input = TensorDesc::contiguous([16, 32, 2, 73 * 73], DType::F32);
/// let norm = NormDesc::new(input, [2, 3], Statistics::MeanVariance)
///     .with_scale(TensorDesc::contiguous([32, 2, 1], DType::F32));
/// let desc = GradientDesc::new(norm);
/// let column_dims = |hardware: &Hardware| -> Result<usize, NormError> {
///     let problem = input_problem_on(&desc, sums_on(&desc, hardware), hardware)?;
///     Ok(problem.input.col.len())
/// };
/// assert_eq!(column_dims(&Hardware::cpu(8, 512))?, 2);
/// assert_eq!(column_dims(&Hardware::cuda(132))?, 1);
/// # Ok::<(), NormError>(())
/// ```
pub fn input_problem_on(
    desc: &GradientDesc,
    sums: ParamSums,
    hardware: &Hardware,
) -> Result<GradientProblem, NormError> {
    let whole = desc.input_problem(sums)?;
    let is_cpu = hardware.cpu_cores.is_some();
    let Some(cut) = whole.cut_at_runs().filter(|_| is_cpu) else {
        return Ok(whole);
    };
    let plan = |problem: &GradientProblem| {
        let plan = plan_gradient(problem, hardware, StrategyChoice::Inferred).ok()?;
        Some((plan.blueprint.team, plan.blueprint.by_runs))
    };
    let (of_whole, of_cut) = (plan(&whole), plan(&cut));
    // Else they take a launch that reads everything once more.
    let sums_on_the_way =
        of_cut.is_some_and(|(_, sums)| sums) && of_whole.is_some_and(|(_, sums)| !sums);
    let [of_whole, of_cut] = [of_whole, of_cut].map(|plan| plan.map(|(team, _)| team));
    let pays = sums_on_the_way || cut_pays(whole.dtype, of_whole, of_cut);
    Ok(match pays {
        true => cut,
        false => whole,
    })
}

/// How a gradient's sums are to be taken on a device: of strands, where rows have any and they pay, else as
/// [`GradientDesc::param_sums`] says.
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, GradientDesc, Hardware, Layout, NormDesc, ParamSums, Statistics, TensorDesc, sums_on,
/// };
///
/// // Two groups of four channels that are last in memory, of 900 pixels each.
/// let layout = Layout::strided([1, 2, 4, 900], [7200, 4, 1, 8]);
/// let norm = NormDesc::new(TensorDesc::new(layout, DType::F32), [2, 3], Statistics::MeanVariance)
///     .with_scale(TensorDesc::contiguous([2, 4, 1], DType::F32));
/// let desc = GradientDesc::new(norm);
/// assert_eq!(sums_on(&desc, &Hardware::cuda(132)), ParamSums::Strands);
/// ```
pub fn sums_on(desc: &GradientDesc, hardware: &Hardware) -> ParamSums {
    let bytes = desc.norm.input.dtype.size();
    match desc.sums_of_strands() {
        Some((strands, cols)) if strands_pay(strands, cols, bytes, hardware) => ParamSums::Strands,
        _ => desc.param_sums(),
    }
}

/// Whether so many strands of so many elements are worth finding what each lane of them is multiplied with. Measured with
/// AVX-512, forward and backward together, batch norm of floats in maps of 7 x 7, whose strands are 196 bytes: with 8
/// pictures they take 1.57 times the time of whole rows, with 32 1.33, with 83 1.05; with 167 of halves 0.86.
fn strands_pay(strands: usize, cols: usize, bytes: usize, hardware: &Hardware) -> bool {
    hardware.cpu_cores.is_none() || cols >= strands * bytes
}
