//! What the kernels of a plan address, step by step: their arithmetic on the host.
//!
//! The functions repeat `kernels/src/schedule/`, `memory/access.rs` and `reduce/split.rs` line by line. They share nothing with
//! the planner, and nothing with `plan/footprint.rs`.

use cubenorm_core::{
    Access, AccessBlueprint, BackwardDesc, BackwardLaunch, BackwardSchedule, Buffer,
    CODES_PER_WORD, Dim, Footprint, Grid, Layout, Level, LoadMode, NormDesc, NormProblem,
    ParamReduce, Plan, Staging, Team, Vectorization,
};

use crate::problems::SMALL;

type Checked = Result<(), String>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

/// How the work of a launch is spread.
struct Distribution<'a> {
    team: &'a Team,
    grid: &'a Grid,
    rows_per_unit: usize,
    rows: usize,
    cols: usize,
}

/// A part of a row group.
#[derive(Clone, Copy)]
struct Item {
    group: usize,
    part: usize,
}

impl Distribution<'_> {
    fn parts_are_items(&self) -> bool {
        self.team.has_parts() && self.team.cluster_size() == 1
    }

    fn items(&self) -> usize {
        let splits = if self.parts_are_items() {
            self.grid.splits
        } else {
            1
        };
        self.grid.groups * splits
    }

    fn teams(&self) -> usize {
        let units: usize = self.grid.cube_dim.iter().map(|&it| it as usize).product();
        let of_cube = units / self.team.size() as usize;
        self.grid.cube_count as usize / self.team.cluster_size() as usize * of_cube
    }

    fn item(&self, team: usize, round: usize) -> Option<Item> {
        let ours = self.grid.groups_per_team;
        let index = match self.team.is_blocked() {
            _ if self.team.is_dynamic() => round,
            true => team * ours + round,
            false => round * self.teams() + team,
        };
        let exists = index < self.items() && (self.team.is_dynamic() || round < ours);
        exists.then(|| match self.parts_are_items() {
            true => Item {
                group: index % self.grid.groups,
                part: index / self.grid.groups,
            },
            false => Item {
                group: index,
                part: 0,
            },
        })
    }

    /// Calls `visit` for each item of a team.
    fn each_item(&self, mut visit: impl FnMut(Item) -> Checked) -> Checked {
        let ours = self.grid.groups_per_team;
        ensure!(ours > 0, "a team has no round");
        let items = self.items();
        let sources = match self.team.is_dynamic() {
            true => items.div_ceil(ours),
            false => self.teams(),
        };
        let rounds = |source: usize| match self.team.is_dynamic() {
            true => (source * ours, (source * ours + ours).min(items)),
            false => (0, ours),
        };
        for source in 0..sources {
            let (mut round, end) = rounds(source);
            while round < end {
                let first = self.item(source, round);
                if first.is_none() {
                    break;
                }
                for r in 0..self.rows_per_unit {
                    let item = self.item(source, round + r);
                    // Rows of a tile are not checked for existence, and have one part.
                    if self.team.is_tile() {
                        let (first, item) = (first.map(|it| it.part), item.map(|it| it.part));
                        ensure!(
                            first == item,
                            "row {r} of those side by side is in another part, or none"
                        );
                    }
                    if let Some(item) = item {
                        visit(item)?;
                    }
                }
                round += self.rows_per_unit;
            }
        }
        Ok(())
    }

    /// Steps of a member of a part, and how many it takes for granted.
    fn share(&self, part: usize, member: usize) -> (usize, usize) {
        let (mut first, mut end) = (0, self.grid.steps);
        if self.team.has_parts() {
            first = part * self.grid.steps_per_split;
            end = (first + self.grid.steps_per_split).min(self.grid.steps);
        }
        let members = self.team.size() as usize;
        let begin = first + member;
        match self.team.exact_vectors() {
            Some(count) => (begin, count),
            None if members == 1 => (first, end - first.min(end)),
            None if begin < end => (begin, (end - begin).div_ceil(members)),
            None => (begin, 0),
        }
    }

    /// Asserts that the members of each part have each of its steps once, and returns the steps of each.
    fn parts(&self, staged: Option<usize>) -> Result<Vec<Vec<usize>>, String> {
        let grid = self.grid;
        let parts = match self.team.has_parts() {
            true => grid.splits,
            false => 1,
        };
        let members = self.team.size() as usize;
        let mut seen = vec![0u8; grid.steps];
        let mut all = Vec::new();
        for part in 0..parts {
            let mut steps = Vec::new();
            for member in 0..members {
                let (begin, count) = self.share(part, member);
                if let Some(staged) = staged {
                    ensure!(
                        count <= staged,
                        "a unit holds {staged} of its {count} steps"
                    );
                    // These are taken without a question.
                    let sure = self.team.unguarded_vectors().min(staged);
                    ensure!(
                        self.team.exact_vectors().is_some() || sure <= count,
                        "a unit takes {sure} steps for granted and has {count}"
                    );
                }
                for i in 0..count {
                    let step = begin + i * members;
                    ensure!(step < grid.steps, "step {step} of {}", grid.steps);
                    seen[step] += 1;
                    steps.push(step);
                }
            }
            all.push(steps);
        }
        let wrong = seen.iter().position(|&times| times != 1);
        ensure!(
            wrong.is_none(),
            "step {wrong:?} is taken {} times",
            seen[wrong.unwrap_or(0)]
        );
        Ok(all)
    }

    fn first_row(&self, group: usize) -> usize {
        let vector = self.team.vector;
        match self.team.lanes() {
            Vectorization::Parallel => group,
            Vectorization::Perpendicular if self.team.has_row_tail() => {
                group * vector - (group + 1) / self.grid.segment_steps * self.grid.overlap
            }
            Vectorization::Perpendicular => group * vector,
        }
    }

    /// Row and column of each lane of a step, and true for those that no other vector has.
    fn lanes(&self, group: usize, step: usize) -> Vec<(usize, usize, bool)> {
        let vector = self.team.vector;
        let row = self.first_row(group);
        let ends = |index: usize| index % self.grid.segment_steps == self.grid.segment_steps - 1;
        match self.team.lanes() {
            Vectorization::Perpendicular => {
                let tail = self.team.has_row_tail() && ends(group);
                let first = if tail { self.grid.overlap } else { 0 };
                (0..vector)
                    .map(|lane| (row + lane, step, lane >= first))
                    .collect()
            }
            Vectorization::Parallel if self.team.has_tail() => {
                let (steps, overlap) = (self.grid.segment_steps, self.grid.overlap);
                let length = steps * vector - overlap;
                let position = (step % steps * vector).min(length - vector);
                let col = step / steps * length + position;
                let first = if ends(step) { overlap } else { 0 };
                (0..vector)
                    .map(|lane| (row, col + lane, lane >= first))
                    .collect()
            }
            Vectorization::Parallel => (0..vector)
                .map(|lane| (row, step * vector + lane, true))
                .collect(),
        }
    }
}

/// The sizes of a launch, where its addresses are too many to enumerate.
fn is_whole(distribution: &Distribution) -> Checked {
    let grid = distribution.grid;
    let taken = match distribution.team.is_dynamic() {
        true => usize::MAX,
        false => distribution.teams().saturating_mul(grid.groups_per_team),
    };
    ensure!(
        taken >= distribution.items(),
        "{taken} of {} items are taken",
        distribution.items()
    );
    ensure!(
        grid.splits.saturating_mul(grid.steps_per_split) >= grid.steps,
        "parts leave steps out"
    );
    if distribution.team.cluster_size() == 1 && grid.splits > 1 {
        let before = (grid.splits - 1) * grid.steps_per_split;
        ensure!(before < grid.steps, "the last part is empty");
    }
    let lanes = distribution.team.vector;
    let elements = match distribution.team.lanes() {
        Vectorization::Parallel => (grid.groups, grid.steps * lanes),
        Vectorization::Perpendicular => (grid.groups * lanes, grid.steps),
    };
    ensure!(
        elements.0 >= distribution.rows && elements.1 >= distribution.cols,
        "{elements:?} of {} rows and {} columns are covered",
        distribution.rows,
        distribution.cols
    );
    Ok(())
}

/// Visits each step of each item, and asserts that every element is covered once by lanes of its own.
fn cover(
    distribution: &Distribution,
    staged: Option<usize>,
    mut visit: impl FnMut(usize, usize, &[(usize, usize, bool)]) -> Checked,
) -> Checked {
    let parts = distribution.parts(staged)?;
    let (rows, cols) = (distribution.rows, distribution.cols);
    let mut own = vec![0u8; rows * cols];
    let mut items = vec![0u8; distribution.items()];
    distribution.each_item(|item| {
        items[item.part * distribution.grid.groups + item.group] += 1;
        let steps = match distribution.team.cluster_size() {
            1 => parts[item.part..=item.part].iter(),
            // Each cube of a cluster has its part.
            _ => parts[..].iter(),
        };
        for &step in steps.flatten() {
            let lanes = distribution.lanes(item.group, step);
            for &(row, col, is_own) in &lanes {
                ensure!(
                    row < rows && col < cols,
                    "row {row}, column {col} of {rows} x {cols}"
                );
                own[row * cols + col] += u8::from(is_own);
            }
            visit(item.group, step, &lanes)?;
        }
        Ok(())
    })?;
    let wrong = items.iter().position(|&times| times != 1);
    ensure!(
        wrong.is_none(),
        "item {wrong:?} is taken {} times",
        items[wrong.unwrap_or(0)]
    );
    let wrong = own.iter().position(|&times| times != 1);
    ensure!(
        wrong.is_none(),
        "element {wrong:?} is written {} times",
        own[wrong.unwrap_or(0)]
    );
    Ok(())
}

fn decode(dims: &[Dim], index: usize, has_unit_stride: bool) -> usize {
    let (mut offset, mut rest) = (0, index);
    for (i, dim) in dims.iter().enumerate().rev() {
        let mut position = rest;
        if i > 0 {
            position = rest % dim.size;
            rest /= dim.size;
        }
        let stride = match has_unit_stride && i + 1 == dims.len() {
            true => 1,
            false => dim.stride,
        };
        offset += position * stride;
    }
    offset
}

/// Where a row and column lie.
fn place(access: &Access, row: usize, col: usize) -> usize {
    decode(&access.row, row, false) + decode(&access.col, col, false)
}

/// The offset of a step whose segments end with a tail vector.
fn offset_before_tail(access: &Access, contiguous: bool, vector: usize, step: usize) -> usize {
    let Some((innermost, outer)) = access.col.split_last() else {
        return 0;
    };
    let (mut within, mut offset) = (step, 0);
    if !outer.is_empty() {
        let steps = innermost.size.div_ceil(vector);
        within = step % steps;
        offset = decode(outer, step / steps, false);
    }
    let position = (within * vector).min(innermost.size - vector);
    let stride = if contiguous { 1 } else { innermost.stride };
    offset + position * stride
}

/// The address of each lane of a step, as the kernels form it.
fn addresses(
    access: &Access,
    blueprint: AccessBlueprint,
    distribution: &Distribution,
    group: usize,
    step: usize,
) -> Result<Vec<usize>, String> {
    let team = distribution.team;
    let (vector, lanes) = (team.vector, team.lanes());
    let row = distribution.first_row(group);
    let contiguous = matches!(
        blueprint.mode,
        LoadMode::Vector | LoadMode::PackedHalf2 | LoadMode::PackedByte4 | LoadMode::Unaligned
    );
    let is_constant = access.col.is_empty();
    let base = match blueprint.has_packed_rows() {
        true => row * distribution.cols,
        false => decode(
            &access.row,
            row,
            lanes == Vectorization::Perpendicular && contiguous,
        ),
    };
    let col_offset = |col: usize| {
        let unit = lanes == Vectorization::Parallel && contiguous || blueprint.has_unit_stride();
        decode(&access.col, col, unit)
    };
    let step_offset = || match blueprint.has_tail() {
        true => offset_before_tail(access, contiguous, vector, step),
        false => col_offset(match lanes {
            Vectorization::Parallel => step * vector,
            Vectorization::Perpendicular => step,
        }),
    };
    let all = |first: usize, stride: usize| (0..vector).map(|lane| first + lane * stride).collect();
    Ok(match blueprint.mode {
        LoadMode::Vector | LoadMode::PackedHalf2 | LoadMode::PackedByte4 => {
            let of_steps = access.col.len() == 1 && !blueprint.has_tail();
            let place = match lanes {
                Vectorization::Parallel if of_steps => base / vector + step,
                Vectorization::Perpendicular if of_steps => {
                    base / vector + step * (access.col[0].stride / vector)
                }
                _ => (base + step_offset()) / vector,
            };
            all(place * vector, 1)
        }
        LoadMode::Unaligned => all(base + step_offset(), 1),
        LoadMode::Broadcast => all(base + if is_constant { 0 } else { step_offset() }, 0),
        LoadMode::RowScalar => (0..vector)
            .map(|lane| decode(&access.row, row + lane, false))
            .collect(),
        LoadMode::Gather => {
            let stride = match (lanes, vector) {
                (_, 1) => 0,
                (Vectorization::Parallel, _) => {
                    access.col.last().ok_or("no column to gather along")?.stride
                }
                (Vectorization::Perpendicular, _) => {
                    access.row.last().ok_or("no row to gather along")?.stride
                }
            };
            all(base + step_offset(), stride)
        }
        LoadMode::Segments => {
            let (innermost, outer) = access.col.split_last().ok_or("no run")?;
            let col = step * vector;
            let (run, left) = (col / innermost.size, innermost.size - col % innermost.size);
            let next = run + usize::from(left < vector);
            let [here, there] = [run, next].map(|run| base + decode(outer, run, false));
            (0..vector)
                .map(|lane| if lane < left { here } else { there })
                .collect()
        }
    })
}

/// A tensor of a launch: how it is addressed, and how many elements it has.
struct Bound<'a> {
    buffer: Buffer,
    access: &'a Access,
    blueprint: AccessBlueprint,
    span: usize,
}

impl<'a> Bound<'a> {
    fn new(
        buffer: Buffer,
        access: Option<&'a Access>,
        blueprint: Option<AccessBlueprint>,
        layout: Option<&Layout>,
    ) -> Option<Self> {
        Some(Self {
            buffer,
            access: access?,
            blueprint: blueprint?,
            span: layout?.checked_span()?,
        })
    }

    /// Asserts that the kernel reads what belongs to each lane of a step, inside the buffer.
    fn check(
        &self,
        distribution: &Distribution,
        group: usize,
        step: usize,
        lanes: &[(usize, usize, bool)],
    ) -> Checked {
        let addresses = addresses(self.access, self.blueprint, distribution, group, step)?;
        for (&address, &(row, col, _)) in addresses.iter().zip(lanes) {
            let expected = place(self.access, row, col);
            let Self { buffer, span, .. } = self;
            ensure!(
                address == expected,
                "{buffer:?}: row {row}, column {col} is at {expected}, the kernel takes {address}"
            );
            ensure!(address < *span, "{buffer:?}: {address} of {span} elements");
        }
        Ok(())
    }
}

/// Asserts that a footprint reaches as far as a layout does at most.
fn within(footprint: &[Footprint], buffer: Buffer, layout: Option<&Layout>) -> Checked {
    let reached = footprint
        .iter()
        .map(|it| it.elements(buffer))
        .max()
        .unwrap_or(0);
    let span = layout.and_then(Layout::checked_span).unwrap_or(0);
    ensure!(
        reached <= span,
        "{buffer:?}: {reached} elements are reached, there are {span}"
    );
    Ok(())
}

/// Elements of a workspace that the kernels of a split row write: see `write_part`.
fn partial_statistics(distribution: &Distribution, shifts: bool) -> usize {
    let (grid, team) = (distribution.grid, distribution.team);
    let width = match team.lanes() {
        Vectorization::Perpendicular => team.vector,
        Vectorization::Parallel => 1,
    };
    let m2 = grid.splits * grid.groups;
    let slot = (grid.splits - 1) * grid.groups + grid.groups - 1;
    let mut last = m2 + slot;
    if shifts {
        last = 2 * m2 + grid.groups - 1;
    }
    (last + 1) * width
}

/// Checks what the launches of a plan touch between them.
fn workspaces_fit(plan: &Plan, distribution: &Distribution) -> Checked {
    words_fit(distribution.team, distribution.grid, plan.cluster_words())?;
    let blueprint = &plan.blueprint;
    if blueprint.split() {
        let shifts = blueprint.team.is_segmented() && blueprint.shifts();
        let touched = partial_statistics(distribution, shifts);
        ensure!(
            touched <= plan.workspace,
            "the workspace: {touched} of {} are touched",
            plan.workspace
        );
    }
    if let Some(combine) = &plan.combine {
        let rows = combine.grid.groups;
        let touched = (2 + usize::from(blueprint.shifts())) * rows;
        ensure!(
            touched <= combine.workspace,
            "combined: {touched} of {}",
            combine.workspace
        );
        let read =
            (2 * plan.grid.splits + usize::from(blueprint.shifts())) * rows * plan.grid.segments;
        ensure!(
            read <= plan.workspace,
            "combining reads {read} of {}",
            plan.workspace
        );
    }
    Ok(())
}

/// Asserts all of a forward plan.
pub(crate) fn forward(desc: &NormDesc, problem: &NormProblem, plan: &Plan) -> Checked {
    let blueprint = &plan.blueprint;
    let footprint = plan.footprint(problem);
    let [mean, variance] = match &desc.statistics {
        cubenorm_core::Statistics::Provided { mean, variance } => {
            [Some(&mean.layout), Some(&variance.layout)]
        }
        _ => [None, None],
    };
    let layouts = [
        (Buffer::Input, Some(&desc.input.layout)),
        (
            Buffer::Residual,
            desc.residual.as_ref().map(|it| &it.layout),
        ),
        (Buffer::Scale, desc.scale.as_ref().map(|it| &it.layout)),
        (Buffer::Bias, desc.bias.as_ref().map(|it| &it.layout)),
        (Buffer::Mean, mean),
        (Buffer::Variance, variance),
        (
            Buffer::Rotation,
            desc.rotation.as_ref().map(|it| &it.table.layout),
        ),
        (
            Buffer::CodesScale,
            desc.quantization
                .as_ref()
                .and_then(|it| it.scale.as_ref())
                .map(|it| &it.layout),
        ),
        (Buffer::Output, Some(&problem.output_layout)),
        (Buffer::Sum, Some(&problem.output_layout)),
    ];
    for (buffer, layout) in layouts {
        within(&footprint, buffer, layout)?;
    }
    if desc.quantization.is_some() {
        let team = &blueprint.team;
        let has_words = team.vector.is_multiple_of(CODES_PER_WORD)
            && team.lanes() == Vectorization::Parallel
            && !team.has_tail();
        ensure!(has_words, "vectors have parts of words");
        ensure!(
            !team.has_parts() && !team.is_tile() && !blueprint.split(),
            "a team has no whole row to scale"
        );
    }
    if problem.written_statistics.is_some() {
        let statistics = desc.statistics_desc();
        within(&footprint, Buffer::Statistics, Some(&statistics.layout))?;
    }
    let distribution = Distribution {
        team: &blueprint.team,
        grid: &plan.grid,
        rows_per_unit: blueprint.rows_per_unit,
        rows: problem.rows,
        cols: problem.cols,
    };
    is_whole(&distribution)?;
    workspaces_fit(plan, &distribution)?;
    if problem.rows.saturating_mul(problem.cols) > SMALL {
        return Ok(());
    }
    let layout = |buffer: Buffer| layouts.iter().find(|it| it.0 == buffer).and_then(|it| it.1);
    let bound: Vec<Bound> = [
        (Buffer::Input, Some(&problem.input), Some(blueprint.input)),
        (
            Buffer::Residual,
            problem.residual.as_ref(),
            blueprint.residual(),
        ),
        (Buffer::Scale, problem.scale.as_ref(), blueprint.scale),
        (Buffer::Bias, problem.bias.as_ref(), blueprint.bias),
        (Buffer::Mean, problem.mean.as_ref(), blueprint.mean),
        (
            Buffer::Variance,
            problem.variance.as_ref(),
            blueprint.variance,
        ),
        (
            Buffer::Output,
            Some(&problem.output),
            Some(blueprint.output),
        ),
    ]
    .into_iter()
    .filter_map(|(buffer, access, blueprint)| Bound::new(buffer, access, blueprint, layout(buffer)))
    .collect();
    let staged = blueprint.staging.vectors();
    cover(&distribution, staged, |group, step, lanes| {
        bound
            .iter()
            .try_for_each(|it| it.check(&distribution, group, step, lanes))
    })
}

/// Asserts all of a backward pass.
pub(crate) fn backward(desc: &BackwardDesc, schedule: &BackwardSchedule) -> Checked {
    let norm = &desc.norm;
    let footprint = schedule.footprint();
    let layouts = [
        (Buffer::Input, Some(&norm.input.layout)),
        (Buffer::OutputGradient, Some(&desc.output_gradient.layout)),
        (Buffer::Saved, desc.saved.as_ref().map(|it| &it.layout)),
        (Buffer::Scale, norm.scale.as_ref().map(|it| &it.layout)),
        (Buffer::Bias, norm.bias.as_ref().map(|it| &it.layout)),
        (
            Buffer::SumGradient,
            desc.sum_gradient.as_ref().map(|it| &it.layout),
        ),
        (
            Buffer::InputGradient,
            desc.input_gradient.as_ref().map(|it| &it.layout),
        ),
        (Buffer::Gate, desc.gate().map(|gate| &gate.layout)),
        (
            Buffer::GateGradient,
            desc.gate_gradient.as_ref().map(|it| &it.layout),
        ),
    ];
    for (buffer, layout) in layouts {
        within(&footprint, buffer, layout)?;
    }
    let inputs = schedule
        .launches
        .iter()
        .filter(|it| it.writes_input)
        .count();
    ensure!(
        inputs == usize::from(desc.input_gradient.is_some()),
        "dx is written {inputs} times"
    );
    let params = [
        (desc.wants_scale, &norm.scale, "scale"),
        (desc.wants_bias, &norm.bias, "bias"),
    ];
    for (which, (wants, param, name)) in params.into_iter().enumerate() {
        let wanted = usize::from(wants && param.is_some());
        let reductions = schedule.launches.iter().filter_map(|it| it.reduce.as_ref());
        let written = reductions.filter(|it| it.writes[which]).count();
        ensure!(
            written == wanted,
            "the gradient of the {name} is written {written} times"
        );
    }
    schedule
        .launches
        .iter()
        .try_for_each(|launch| backward_launch(&layouts, launch))
}

/// Checks the buffers of sums that a launch touches.
fn sums_fit(launch: &BackwardLaunch, distribution: &Distribution) -> Checked {
    let BackwardLaunch { problem, plan, .. } = launch;
    let blueprint = &plan.blueprint;
    let team = &blueprint.team;
    if blueprint.split() {
        let touched = partial_statistics(distribution, false);
        ensure!(
            touched <= plan.workspace,
            "the workspace: {touched} of {} are touched",
            plan.workspace
        );
    }
    if blueprint.combines_within() {
        // The sums of each lane of each row group, twice.
        let touched = 2 * plan.grid.groups * team.vector;
        ensure!(
            touched <= plan.workspace,
            "sums of channels: {touched} of {}",
            plan.workspace
        );
    }
    if blueprint.column_sums.any() {
        let touched = column_sums(
            distribution,
            blueprint.column_sums.count(),
            blueprint.staged_columns,
        );
        let allocated = plan.column_sums(problem.cols);
        ensure!(
            touched <= allocated,
            "sums of columns: {touched} of {allocated} are touched"
        );
    }
    words_fit(team, &plan.grid, plan.cluster_words())
}

/// The words of a cluster: a ring of four rounds, with two words for each cube.
fn words_fit(team: &Team, grid: &Grid, allocated: usize) -> Checked {
    let touched = match team.cluster_size() {
        1 => 0,
        cubes => (grid.cube_count / cubes * 4 * cubes * 2) as usize,
    };
    ensure!(touched <= allocated, "words: {touched} of {allocated}");
    Ok(())
}

fn backward_launch(layouts: &[(Buffer, Option<&Layout>)], launch: &BackwardLaunch) -> Checked {
    let BackwardLaunch { problem, plan, .. } = launch;
    let blueprint = &plan.blueprint;
    let distribution = Distribution {
        team: &blueprint.team,
        grid: &plan.grid,
        rows_per_unit: blueprint.rows_per_unit,
        rows: problem.rows,
        cols: problem.cols,
    };
    is_whole(&distribution)?;
    sums_fit(launch, &distribution)?;
    if let Some(reduce) = &launch.reduce {
        param_reduce(reduce)?;
    }
    if problem.rows.saturating_mul(problem.cols) > SMALL {
        return Ok(());
    }
    let layout = |buffer: Buffer| layouts.iter().find(|it| it.0 == buffer).and_then(|it| it.1);
    let bound: Vec<Bound> = [
        (Buffer::Input, Some(&problem.input), Some(blueprint.input)),
        (
            Buffer::OutputGradient,
            Some(&problem.output_gradient),
            Some(blueprint.output_gradient),
        ),
        (Buffer::Scale, problem.scale.as_ref(), blueprint.scale),
        (Buffer::Bias, problem.bias.as_ref(), blueprint.bias),
        (
            Buffer::SumGradient,
            problem.sum_gradient.as_ref(),
            blueprint.input_gradient,
        ),
        (
            Buffer::InputGradient,
            problem.input_gradient.as_ref(),
            blueprint.input_gradient,
        ),
        (
            Buffer::Gate,
            problem.gate.as_ref().map(|gate| &gate.access),
            blueprint.gate.map(|gate| gate.access),
        ),
        (
            Buffer::GateGradient,
            (problem.input_gradient.as_ref()).filter(|_| blueprint.writes_gate_gradient()),
            (blueprint.input_gradient).filter(|_| blueprint.writes_gate_gradient()),
        ),
    ]
    .into_iter()
    .filter_map(|(buffer, access, blueprint)| Bound::new(buffer, access, blueprint, layout(buffer)))
    .collect();
    cover(
        &distribution,
        blueprint.staged_columns.vectors(),
        |group, step, lanes| {
            bound
                .iter()
                .try_for_each(|it| it.check(&distribution, group, step, lanes))
        },
    )
}

/// Asserts that a reduction writes each element once, and reads what the launch before has left.
fn param_reduce(reduce: &ParamReduce) -> Checked {
    let ParamReduce {
        partials,
        vector,
        rounds,
        elements,
        ..
    } = reduce;
    let [columns, ..] = reduce.cube_dim;
    let places = reduce.cube_count[0] as usize * columns as usize * rounds;
    ensure!(
        elements % vector == 0,
        "vectors of {vector} do not divide {elements}"
    );
    ensure!(
        places * vector >= *elements,
        "{places} vectors of {elements} elements are reduced"
    );
    let outputs = reduce.writes.iter().filter(|&&it| it).count();
    ensure!(
        reduce.cube_count[1] as usize == outputs,
        "{outputs} gradients"
    );
    let offset = (0..2)
        .filter(|&i| reduce.writes[i])
        .map(|i| partials.offsets[i])
        .max();
    let first = offset.unwrap_or(0);
    let of = |dims: &[Dim]| dims.iter().map(|dim| dim.size).product::<usize>();
    ensure!(
        of(&partials.access.col) == partials.parts,
        "parts: {partials:?}"
    );
    let last = match of(&partials.access.row)
        .max(1)
        .saturating_mul(partials.parts)
        <= SMALL
    {
        false => return Ok(()),
        true => (0..elements / vector)
            .flat_map(|place| (0..partials.parts).map(move |part| (place * vector, part)))
            .map(|(element, part)| {
                // A vector is read from a multiple of its width on.
                let at = first + place(&partials.access, element, part);
                (at / vector + 1) * vector
            })
            .max(),
    };
    let last = last.unwrap_or(0);
    ensure!(
        last <= partials.elements,
        "{last} of {} sums are read",
        partials.elements
    );
    Ok(())
}

/// Elements of the sums of columns that the kernel touches: see `backward/param_partials.rs`.
fn column_sums(distribution: &Distribution, kinds: usize, staged: Staging) -> usize {
    let (team, grid) = (distribution.team, distribution.grid);
    let vector = team.vector;
    if staged != Staging::Reload && team.lanes() == Vectorization::Perpendicular {
        let written = grid.steps.div_ceil(vector);
        let first = ((grid.cube_count as usize - 1) * kinds + kinds - 1) * written;
        return (first + written) * vector;
    }
    let slot = match team.level() {
        _ if staged != Staging::Reload => distribution.teams() - 1,
        _ if team.has_parts() && team.lanes() == Vectorization::Perpendicular => 0,
        _ if team.has_parts() => grid.groups - 1,
        Level::Unit | Level::Plane | Level::Cube | Level::Perpendicular => distribution.teams() - 1,
    };
    let last = kinds * slot * grid.steps + (kinds - 1) * grid.steps + grid.steps - 1;
    (last + 1) * vector
}
