//! The order of the norms and of the other operations of a block.

use std::collections::{BTreeSet, HashMap, HashSet};

use burn_ir::{TensorId, TensorIr, TensorStatus};

use super::graph::{Graph, Node};
use super::pattern::{Draft, Statistic};
use crate::install::DeclineReason;

/// A step of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A norm, by its position in the list of norms.
    Norm(usize),
    /// An operation of no norm, by its position in the block.
    Operation(usize),
}

/// Orders a block. A norm is one step of it.
///
/// An operation runs after the producers of what it reads. One that frees a tensor runs after all others that read the
/// tensor.
pub(super) fn schedule(graph: &Graph<'_>, norms: &[&Draft]) -> Result<Vec<Step>, DeclineReason> {
    let steps = steps(graph, norms);
    let Needs {
        mut needed,
        needed_by,
    } = Needs::new(graph, norms, &steps);
    let may_run = (0..steps.len()).filter(|&step| needed[step].is_empty());
    let mut may_run: BTreeSet<usize> = may_run.collect();
    let mut order = Vec::with_capacity(steps.len());
    // The earliest that may run. A norm runs as soon as it may.
    while let Some(next) = may_run.pop_first() {
        order.push(steps[next]);
        for &step in &needed_by[next] {
            needed[step].remove(&next);
            if needed[step].is_empty() {
                may_run.insert(step);
            }
        }
    }
    match order.len() == steps.len() {
        true => Ok(order),
        false => Err(DeclineReason::Interleaved),
    }
}

/// The norms, then the other operations.
fn steps(graph: &Graph<'_>, norms: &[&Draft]) -> Vec<Step> {
    let mut is_taken = vec![false; graph.len()];
    for norm in norms {
        norm.taken.iter().for_each(|&at| is_taken[at] = true);
    }
    let others = (0..graph.len()).filter(|&at| !is_taken[at]);
    (0..norms.len())
        .map(Step::Norm)
        .chain(others.map(Step::Operation))
        .collect()
}

struct Needs {
    /// For each step, the steps that have to run before.
    needed: Vec<HashSet<usize>>,
    /// For each step, the steps that have to run after.
    needed_by: Vec<Vec<usize>>,
}

impl Needs {
    fn new(graph: &Graph<'_>, norms: &[&Draft], steps: &[Step]) -> Self {
        let mut made_by: HashMap<TensorId, usize> = HashMap::new();
        let mut readers: HashMap<TensorId, Vec<usize>> = HashMap::new();
        // A norm frees nothing while it runs.
        let mut frees: Vec<(usize, &TensorIr)> = Vec::new();
        for (step, kind) in steps.iter().enumerate() {
            let mut reads = |tensor: &TensorIr| readers.entry(tensor.id).or_default().push(step);
            match *kind {
                Step::Norm(norm) => {
                    let taken = norms[norm].taken.iter();
                    let outputs = taken.flat_map(|&at| graph.operation(at).outputs());
                    made_by.extend(outputs.map(|output| (output.id, step)));
                    norms[norm].reads().for_each(&mut reads);
                }
                Step::Operation(at) => {
                    let operation = graph.operation(at);
                    made_by.extend(operation.outputs().map(|output| (output.id, step)));
                    for input in operation.inputs() {
                        reads(input);
                        if input.status == TensorStatus::ReadWrite {
                            frees.push((step, input));
                        }
                    }
                }
            }
        }
        let mut needs = Self {
            needed: vec![HashSet::new(); steps.len()],
            needed_by: vec![Vec::new(); steps.len()],
        };
        for (id, readers) in &readers {
            if let Some(&maker) = made_by.get(id) {
                readers.iter().for_each(|&reader| needs.add(reader, maker));
            }
        }
        for (step, tensor) in frees {
            let readers = &readers[&tensor.id];
            readers.iter().for_each(|&reader| needs.add(step, reader));
        }
        needs
    }

    fn add(&mut self, step: usize, needed: usize) {
        if step != needed && self.needed[step].insert(needed) {
            self.needed_by[needed].push(step);
        }
    }
}

/// Elementwise passes that a fused norm makes up for, measured on `cpu` and on an H200 under WGSL.
///
/// Burn's fused layer norm reads its input three times. Its fused RMS norm reads it twice. Its batch norm at inference is
/// one pass with everything around it.
fn most_passes(statistic: Statistic) -> usize {
    match statistic {
        Statistic::MeanVariance => 2,
        Statistic::MeanSquare | Statistic::SumSquare | Statistic::Provided => 1,
    }
}

/// Declines a norm with more elementwise work around it than its fusion makes up for. All norms are claimed.
pub(super) fn check_passes(graph: &Graph<'_>, draft: &Draft) -> Result<(), DeclineReason> {
    let is_pass = |at: usize| !graph.is_claimed(at) && is_elementwise(graph, draft, at);
    let residual = draft.residual.as_ref().map(|(operand, _)| &operand.tensor);
    let mut read = std::iter::once(&draft.input).chain(residual);
    // Burn would fuse what makes the input with the norm, or with a matrix product at the head of the block.
    let is_fed = !matches!(graph.node(0), Node::Matmul)
        && read.any(|tensor| graph.maker(tensor).is_some_and(is_pass));
    // It would fuse what reads the input or the output with the norm too.
    let mut shared = std::iter::once(&draft.input).chain(draft.writes());
    let is_shared = shared.any(|tensor| graph.users(tensor).any(is_pass));
    let passes = usize::from(is_fed) + usize::from(is_shared);
    let most = most_passes(draft.statistic);
    match passes > most {
        true => Err(DeclineReason::Surrounded { passes, most }),
        false => Ok(()),
    }
}

/// True for an operation on each element of a full tensor. A reshape is none, and Burn's fusion ends there.
fn is_elementwise(graph: &Graph<'_>, draft: &Draft, at: usize) -> bool {
    let is_view = matches!(
        graph.node(at),
        Node::Drop | Node::Init | Node::Matmul | Node::Reshape(_) | Node::Other
    );
    let is_full = |output: &TensorIr| draft.fulls.iter().any(|full| full.shape == output.shape);
    !is_view && graph.output(at).is_some_and(is_full)
}
