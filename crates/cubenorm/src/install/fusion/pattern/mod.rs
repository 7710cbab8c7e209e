//! Norms in a graph. A pattern is matched backward, from the operation that divides by the deviation to the input, then
//! forward over scale, bias, residual and activation.

mod activation;
mod affine;
mod core;
mod residual;
mod statistic;

use burn::tensor::DType;
use burn_fusion::stream::ScalarId;
use burn_ir::{TensorId, TensorIr};
use cubenorm_core::ResidualPlace;

use super::graph::{Graph, Node, Reduce};
use crate::install::DeclineReason;

pub(super) use activation::Function;
pub(super) use affine::{Linear, fold};

/// The statistics of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    /// Mean and variance.
    MeanVariance,
    /// The mean of squares.
    MeanSquare,
    /// The sum of squares, which is the mean of squares times the elements of a row.
    SumSquare,
    /// A mean and a variance that are inputs of the block.
    Provided,
}

/// A number that is known when the optimization runs.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// A number has a value.
    Is(ScalarId, f64),
    /// A sum is divided by the number of its elements.
    Mean {
        /// The tensor that is reduced.
        of: TensorIr,
        /// The axes that are summed.
        summed: Vec<usize>,
        /// The numbers that the sum is multiplied (`true`) or divided by.
        factors: Vec<(ScalarId, bool)>,
    },
}

/// A small tensor, and the full tensor that it broadcasts to.
#[derive(Debug, Clone)]
pub(super) struct Use {
    pub(super) small: TensorIr,
    pub(super) full: TensorIr,
}

/// A parameter, residual or provided statistic.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// The tensor to read.
    pub(super) tensor: TensorIr,
    /// The shape that it broadcasts from, and the one it broadcasts to.
    pub(super) used: Use,
}

/// Epsilon of a match.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant {
    /// Epsilon is 0.
    None,
    InsideSqrt(ScalarId),
    AddedToDeviation(ScalarId),
}

/// A norm, as far as it is matched. Shapes are the block's: positions of sizes, 0 for a size of 1.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// The operations that the kernel replaces, in order.
    pub(super) taken: Vec<usize>,
    pub(super) statistic: Statistic,
    pub(super) epsilon: Constant,
    pub(super) input: TensorIr,
    pub(super) residual: Option<(Operand, ResidualPlace)>,
    pub(super) scale: Option<Operand>,
    pub(super) bias: Option<Operand>,
    pub(super) mean: Option<Operand>,
    pub(super) variance: Option<Operand>,
    pub(super) function: Function,
    pub(super) linear: Vec<(Linear, ScalarId)>,
    pub(super) output: TensorIr,
    /// `input + residual`, if it is read outside the norm.
    pub(super) sum: Option<TensorIr>,
    pub(super) conditions: Vec<Condition>,
    /// Tensors with an element for each of the input's, in the same order.
    pub(super) fulls: Vec<TensorIr>,
    /// Tensors that are reduced, and their axes.
    pub(super) reductions: Vec<(TensorIr, Vec<usize>)>,
    /// Statistics, where they broadcast.
    pub(super) uses: Vec<Use>,
}

/// The reason that an operation is the last of no norm.
#[derive(Debug, Clone)]
pub(super) enum Miss {
    /// It does not look like one.
    NotANorm,
    /// It looks like one, but does not fit.
    Declined(DeclineReason),
}

impl From<DeclineReason> for Miss {
    fn from(reason: DeclineReason) -> Self {
        Self::Declined(reason)
    }
}

/// Everything that a backward match collects.
#[derive(Debug, Clone, Default)]
struct Taken {
    operations: Vec<usize>,
    conditions: Vec<Condition>,
    fulls: Vec<TensorIr>,
    reductions: Vec<(TensorIr, Vec<usize>)>,
    uses: Vec<Use>,
}

impl Taken {
    fn take(&mut self, at: usize) {
        if !self.operations.contains(&at) {
            self.operations.push(at);
        }
    }

    fn take_all(&mut self, operations: &[usize]) {
        operations.iter().for_each(|&at| self.take(at));
    }

    /// Looks through casts and reshapes of a full tensor, and notes the shapes on the way.
    fn look<'a>(
        &mut self,
        graph: &Graph<'a>,
        tensor: &'a TensorIr,
        keeps_values: bool,
    ) -> &'a TensorIr {
        let (source, through) = match keeps_values {
            true => graph.source(tensor),
            false => graph.look_through(tensor),
        };
        self.fulls.push(tensor.clone());
        self.fulls.push(source.clone());
        for &at in &through {
            self.fulls.extend(graph.output(at).cloned());
        }
        self.take_all(&through);
        source
    }

    /// Looks through casts and reshapes of a statistic.
    fn look_at_statistic<'a>(&mut self, graph: &Graph<'a>, tensor: &'a TensorIr) -> &'a TensorIr {
        let (source, through) = graph.look_through(tensor);
        self.take_all(&through);
        source
    }
}

/// The norm whose last operation so far is `root`, with everything behind it that the kernels apply too.
pub(super) fn find(graph: &Graph<'_>, root: usize) -> Result<Draft, Miss> {
    let core = core::find(graph, root)?;
    let mut best: Result<Draft, Miss> = Err(Miss::NotANorm);
    for draft in affine::extensions(graph, core) {
        match finish(graph, draft) {
            Ok(draft) => best = Ok(draft),
            Err(reason) if best.is_err() => best = Err(reason.into()),
            Err(_) => {}
        }
    }
    best
}

/// Chooses the input, adds the residual, and checks that nothing else reads what the kernel does not write.
fn finish(graph: &Graph<'_>, mut draft: Draft) -> Result<Draft, DeclineReason> {
    choose_input(graph, &mut draft)?;
    residual::add(graph, &mut draft);
    give_back(graph, &mut draft);
    draft.taken.sort_unstable();
    check_lives(graph, &draft)?;
    check_operands(graph, &draft)?;
    Ok(draft)
}

/// Chooses the tensor with the output's dtype, of the input and the tensors that it is cast to.
///
/// The kernels write the input's dtype. An f16 input of a norm in f32 whose result stays f32 is cast first.
fn choose_input(graph: &Graph<'_>, draft: &mut Draft) -> Result<(), DeclineReason> {
    let wanted = draft.output.dtype;
    if draft.input.dtype == wanted {
        return Ok(());
    }
    let input = draft.input.id;
    let cast = draft.taken.iter().copied().find(|&at| {
        let is_of_input = matches!(graph.node(at), Node::Cast(from) if from.id == input);
        is_of_input && graph.output(at).is_some_and(|out| out.dtype == wanted)
    });
    let Some((at, output)) = cast.and_then(|at| Some((at, graph.output(at)?))) else {
        return Err(DeclineReason::DType {
            input: draft.input.dtype.name().to_owned(),
            output: wanted.name().to_owned(),
        });
    };
    draft.taken.retain(|&taken| taken != at);
    draft.fulls.push(output.clone());
    draft.input = output.clone();
    // Other casts of the same tensor read what is still there.
    Ok(())
}

/// Leaves casts and reshapes of inputs to the block if something else reads their results too.
fn give_back(graph: &Graph<'_>, draft: &mut Draft) {
    loop {
        let is_read_elsewhere = |&at: &usize| {
            let (Node::Cast(input) | Node::Reshape(input)) = graph.node(at) else {
                return false;
            };
            let Some(output) = graph.output(at) else {
                return false;
            };
            let is_of_input = graph
                .maker(input)
                .is_none_or(|maker| !draft.taken.contains(&maker));
            is_of_input && output.id != draft.output.id && !dies_inside(graph, draft, output)
        };
        let Some(at) = draft.taken.iter().copied().find(is_read_elsewhere) else {
            return;
        };
        draft.taken.retain(|&taken| taken != at);
    }
}

/// True if only operations of the norm and drops read a tensor.
fn dies_inside(graph: &Graph<'_>, draft: &Draft, tensor: &TensorIr) -> bool {
    graph.is_dead(tensor) && graph.users(tensor).all(|at| draft.taken.contains(&at))
}

fn check_lives(graph: &Graph<'_>, draft: &Draft) -> Result<(), DeclineReason> {
    let written =
        |id: TensorId| id == draft.output.id || draft.sum.as_ref().is_some_and(|sum| sum.id == id);
    for &at in &draft.taken {
        let Some(output) = graph.output(at) else {
            continue;
        };
        if !written(output.id) && !dies_inside(graph, draft, output) {
            return Err(DeclineReason::IntermediateRead {
                operation: graph.name(at),
            });
        }
    }
    Ok(())
}

/// Checks that the kernel reads nothing that it would have to write first.
fn check_operands(graph: &Graph<'_>, draft: &Draft) -> Result<(), DeclineReason> {
    for tensor in draft.reads() {
        let Some(maker) = graph.maker(tensor) else {
            continue;
        };
        if draft.taken.contains(&maker) {
            return Err(DeclineReason::IntermediateRead {
                operation: graph.name(maker),
            });
        }
    }
    Ok(())
}

impl Draft {
    /// The tensors that the kernel reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = &TensorIr> {
        let residual = self.residual.as_ref().map(|(operand, _)| operand);
        let operands = [
            residual,
            self.scale.as_ref(),
            self.bias.as_ref(),
            self.mean.as_ref(),
            self.variance.as_ref(),
        ];
        let tensors = operands.into_iter().flatten();
        std::iter::once(&self.input).chain(tensors.map(|operand| &operand.tensor))
    }

    /// The tensors that the kernel writes.
    pub(super) fn writes(&self) -> impl Iterator<Item = &TensorIr> {
        std::iter::once(&self.output).chain(&self.sum)
    }

    /// True if the block has a reshape between full tensors, whose sizes are known when the optimization runs.
    pub(super) fn is_reshaped(&self) -> bool {
        let shape = &self.input.shape;
        self.fulls.iter().any(|full| full.shape != *shape)
    }

    /// The usual name of the norm.
    pub(super) fn name(&self) -> &'static str {
        match self.statistic {
            Statistic::MeanVariance if self.is_reshaped() => "group norm",
            Statistic::MeanVariance => "layer norm",
            Statistic::MeanSquare => "RMS norm",
            Statistic::SumSquare => "L2 norm",
            Statistic::Provided => "batch norm",
        }
    }
}

/// The last operation of a norm divides by its deviation, or multiplies by the reciprocal.
pub(super) fn may_end(node: Node<'_>) -> bool {
    use super::graph::Binary;
    matches!(node, Node::Binary(Binary::Div | Binary::Mul, ..))
}

/// True for a reduction that a norm may contain.
pub(super) fn is_reduction(node: Node<'_>) -> bool {
    matches!(node, Node::Reduce(Reduce::Mean | Reduce::Sum, ..))
}

/// True for the dtypes that the kernels have.
pub(super) fn is_float(dtype: DType) -> bool {
    crate::ops::dtype(dtype).is_some()
}
