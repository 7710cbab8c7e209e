//! The order of a norm and of the other operations of its block.

use std::collections::{HashMap, HashSet};

use burn_ir::{TensorId, TensorIr, TensorStatus};

use super::graph::{Graph, Node};
use super::pattern::{Draft, Statistic};
use super::reason::DeclineReason;

/// The operations of a block around a norm, each in the order to run them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Operations of the block that the optimization covers.
    pub(super) len: usize,
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
}

/// Orders a block. The norm is one step of it.
///
/// An operation runs after the producers of what it reads. One that frees a tensor runs after all others that read the
/// tensor.
pub(super) fn schedule(graph: &Graph<'_>, draft: &Draft) -> Result<Schedule, DeclineReason> {
    let len = covered(graph, draft);
    let others: Vec<usize> = (0..len).filter(|at| !draft.taken.contains(at)).collect();
    let norm = others.len();
    let steps = Steps::new(graph, draft, &others);
    let mut order = Vec::with_capacity(norm + 1);
    let mut is_done = vec![false; norm + 1];
    while order.len() <= norm {
        // The earliest that may run. The norm runs as soon as it may.
        let may_run = |step: &usize| {
            !is_done[*step] && steps.needs[*step].iter().all(|&needed| is_done[needed])
        };
        let next = std::iter::once(norm).chain(0..norm).find(may_run);
        let Some(next) = next else {
            return Err(DeclineReason::Interleaved);
        };
        is_done[next] = true;
        order.push(next);
    }
    let position = order.iter().position(|&step| step == norm).unwrap_or(norm);
    let positions = |steps: &[usize]| steps.iter().map(|&step| others[step]).collect();
    Ok(Schedule {
        len,
        before: positions(&order[..position]),
        after: positions(&order[position + 1..]),
    })
}

/// Operations from the head of the block to the last of the norm, and to the drops that its intermediates die by.
fn covered(graph: &Graph<'_>, draft: &Draft) -> usize {
    let mut last = draft.taken.last().copied().unwrap_or_default();
    for &at in &draft.taken {
        let Some(output) = graph.output(at) else {
            continue;
        };
        if !draft.writes().any(|written| written.id == output.id) {
            last = graph.readers(output).iter().copied().fold(last, usize::max);
        }
    }
    last + 1
}

/// For each step, the steps that have to run before.
struct Steps {
    needs: Vec<HashSet<usize>>,
}

impl Steps {
    fn new(graph: &Graph<'_>, draft: &Draft, others: &[usize]) -> Self {
        let norm = others.len();
        let mut steps = Self {
            needs: vec![HashSet::new(); norm + 1],
        };
        let mut made_by: HashMap<TensorId, usize> = HashMap::new();
        let mut reads: Vec<(usize, &TensorIr)> = Vec::new();
        for (step, &at) in others.iter().enumerate() {
            let operation = graph.operation(at);
            made_by.extend(operation.outputs().map(|output| (output.id, step)));
            reads.extend(operation.inputs().map(|input| (step, input)));
        }
        for &at in &draft.taken {
            let operation = graph.operation(at);
            made_by.extend(operation.outputs().map(|output| (output.id, norm)));
        }
        let mut readers: HashMap<TensorId, Vec<usize>> = HashMap::new();
        for &(step, tensor) in &reads {
            readers.entry(tensor.id).or_default().push(step);
        }
        for tensor in draft.reads() {
            readers.entry(tensor.id).or_default().push(norm);
        }
        for (id, readers) in &readers {
            if let Some(&maker) = made_by.get(id) {
                readers
                    .iter()
                    .for_each(|&reader| steps.after(reader, maker));
            }
        }
        // The norm frees nothing while it runs.
        for (step, tensor) in reads {
            if tensor.status == TensorStatus::ReadWrite {
                let readers = readers.get(&tensor.id).map_or(&[][..], Vec::as_slice);
                readers.iter().for_each(|&reader| steps.after(step, reader));
            }
        }
        steps
    }

    fn after(&mut self, step: usize, needed: usize) {
        if step != needed {
            self.needs[step].insert(needed);
        }
    }
}

/// Elementwise passes that a fused norm makes up for.
///
/// Burn's fused layer norm reads its input three times, its fused RMS norm twice.
fn most_passes(statistic: Statistic) -> usize {
    match statistic {
        Statistic::MeanVariance => 1,
        Statistic::MeanSquare | Statistic::SumSquare | Statistic::Provided => 0,
    }
}

/// Declines a norm with more elementwise work around it than its fusion makes up for.
pub(super) fn check_passes(
    graph: &Graph<'_>,
    draft: &Draft,
    schedule: &Schedule,
) -> Result<(), DeclineReason> {
    let passes = [
        feeds(graph, draft, &schedule.before),
        shares(graph, draft, &schedule.after),
    ];
    let passes = passes.into_iter().filter(|&passes| passes).count();
    let most = most_passes(draft.statistic);
    match passes > most {
        true => Err(DeclineReason::Surrounded { passes, most }),
        false => Ok(()),
    }
}

/// True if an operation makes a tensor that the norm reads element by element, in a kernel that Burn would fuse with it.
fn feeds(graph: &Graph<'_>, draft: &Draft, before: &[usize]) -> bool {
    let residual = draft.residual.as_ref().map(|(operand, _)| &operand.tensor);
    let read = std::iter::once(&draft.input).chain(residual);
    read.filter_map(|tensor| graph.maker(tensor))
        .any(|at| before.contains(&at) && is_elementwise(graph, draft, at))
}

/// True if an operation reads a tensor that the norm reads, in a kernel that Burn would fuse with it.
fn shares(graph: &Graph<'_>, draft: &Draft, after: &[usize]) -> bool {
    after.iter().any(|&at| {
        let mut inputs = graph.operation(at).inputs();
        let is_shared = inputs.any(|input| draft.reads().any(|read| read.id == input.id));
        is_shared && is_elementwise(graph, draft, at)
    })
}

/// True for an operation on each element of a full tensor. A reshape is none, and Burn's fusion ends there.
fn is_elementwise(graph: &Graph<'_>, draft: &Draft, at: usize) -> bool {
    let is_view = matches!(
        graph.node(at),
        Node::Drop | Node::Init | Node::Reshape(_) | Node::Other
    );
    let is_full = |output: &TensorIr| draft.fulls.iter().any(|full| full.shape == output.shape);
    !is_view && graph.output(at).is_some_and(is_full)
}
