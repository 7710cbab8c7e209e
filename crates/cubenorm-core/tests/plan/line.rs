//! One line per plan: its text, and what else its kernel differs in from the simplest one.

use cubenorm_core::{
    AccessBlueprint, BackwardDesc, Guards, Hardware, Knobs, LoadMode, NormDesc, RowBuffering,
    Staging, Team, forward_candidates, input_problem_on, knobs, plan_backward, plan_forward,
    problem_on, sums_on,
};

/// The forward plans of descriptions, one per line.
pub(crate) fn forward(hardware: &Hardware, descs: Vec<NormDesc>) -> String {
    let line = |desc: &NormDesc| forward_line(desc, hardware, Knobs::default());
    lines(descs.iter().map(line))
}

/// The plans of the input's gradient, one per line.
pub(crate) fn backward(hardware: &Hardware, descs: Vec<NormDesc>) -> String {
    lines(descs.into_iter().map(|desc| backward_line(desc, hardware)))
}

/// Forward and backward plans in pairs of lines.
pub(crate) fn both(hardware: &Hardware, descs: Vec<NormDesc>) -> String {
    let pair = |desc: NormDesc| {
        let forward = forward_line(&desc, hardware, Knobs::default());
        [forward, backward_line(desc, hardware)]
    };
    lines(descs.into_iter().flat_map(pair))
}

pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

pub(crate) fn forward_line(desc: &NormDesc, hardware: &Hardware, knobs: Knobs) -> String {
    let problem = problem_on(desc, hardware, knobs.into()).unwrap();
    let plan = plan_forward(&problem, hardware, knobs.into()).unwrap();
    let it = &plan.blueprint;
    let params = [it.scale, it.mean].into_iter().flatten();
    let says = |is: bool, words: &str| is.then(|| words.to_owned());
    let own = [
        guards(&it.team),
        modes([it.input].into_iter().chain(params)),
        loads(it.loads_in_flight),
        it.team
            .params_by_segment()
            .then(|| format!("params per {} steps", plan.grid.segment_steps)),
        it.team
            .params_kept()
            .map(|steps| format!("params of {steps} steps kept")),
        says(it.is_one_block(), "one block"),
        says(it.team.folds(), "folded"),
        says(it.combines_within(), "combines within"),
        it.split()
            .then(|| format!("two launches, workspace {}", plan.workspace)),
        plan.combine
            .map(|it| format!("combines {} groups", it.grid.groups)),
    ];
    let chosen = if knobs == Knobs::default() {
        String::new()
    } else {
        format!(" {knobs}")
    };
    line(&format!("forward{chosen}"), desc, plan.to_string(), own)
}

fn backward_line(norm: NormDesc, hardware: &Hardware) -> String {
    let desc = BackwardDesc::new(norm);
    let sums = sums_on(&desc, hardware);
    let problem = input_problem_on(&desc, sums, hardware).unwrap();
    let plan = plan_backward(&problem, hardware, Default::default()).unwrap();
    let it = &plan.blueprint;
    let says = |is: bool, words: &str| is.then(|| words.to_owned());
    let (teams, lanes) = (plan.parts_of_columns(), plan.lanes_of_column());
    let is_staged = it.staged_columns != Staging::Reload;
    let own = [
        it.column_sums
            .any()
            .then(|| format!("partials of {teams} x {lanes}")),
        is_staged.then(|| format!("sums {:?}, row {}", it.staged_columns, buffering(it.row))),
        (it.staged_scale() != Staging::Reload).then(|| format!("scale {:?}", it.staged_scale())),
        guards(&it.team),
        modes([it.input].into_iter().chain(it.scale)),
        loads(it.loads_in_flight()),
        it.sums_segments()
            .then(|| format!("sums per {} steps", plan.grid.segment_steps)),
        says(it.team.params_by_segment(), "by segment"),
        says(it.combines_within(), "combines within"),
        it.split()
            .then(|| format!("two launches, workspace {}", plan.workspace)),
    ];
    line(
        &format!("backward by {sums:?}"),
        &desc.norm,
        plan.to_string(),
        own,
    )
}

pub(crate) fn candidates_line(desc: &NormDesc, hardware: &Hardware) -> String {
    let candidates = forward_candidates(&desc.problem().unwrap(), hardware).unwrap();
    let all = knobs(hardware);
    let chosen = candidates.into_iter().map(|place| all[place].to_string());
    let chosen: Vec<String> = chosen.collect();
    format!(
        "{} {:?}: {}",
        desc.input.dtype,
        desc.input.shape(),
        chosen.join(", ")
    )
}

fn guards(team: &Team) -> Option<String> {
    match team.guards {
        Guards::Exact(_) => Some("exact".into()),
        Guards::After(0) => None,
        Guards::After(vectors) => Some(format!("{vectors} unguarded")),
    }
}

/// The load modes of input and first parameter, unless both are whole vectors.
fn modes(tensors: impl Iterator<Item = AccessBlueprint>) -> Option<String> {
    let modes: Vec<LoadMode> = tensors.map(|access| access.mode).collect();
    let is_plain = modes.iter().all(|&mode| mode == LoadMode::Vector);
    (!is_plain).then(|| format!("{modes:?}"))
}

fn buffering(row: RowBuffering) -> &'static str {
    match row {
        RowBuffering::Reload { .. } => "Reload",
        RowBuffering::Single => "Single",
        RowBuffering::Prefetch => "Prefetch",
        RowBuffering::DoubleBuffer { .. } => "DoubleBuffer",
    }
}

fn loads(in_flight: usize) -> Option<String> {
    (in_flight > 1).then(|| format!("{in_flight} loads in flight"))
}

fn line<const N: usize>(
    pass: &str,
    desc: &NormDesc,
    plan: String,
    own: [Option<String>; N],
) -> String {
    let (shape, dtype, axes) = (desc.input.shape(), desc.input.dtype, &desc.axes);
    let own: Vec<String> = own.into_iter().flatten().collect();
    format!(
        "{dtype} {shape:?} over {axes:?}, {pass}: {plan} {}",
        own.join(", ")
    )
}
