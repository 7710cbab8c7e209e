//! The fuser that competes with Burn's for the operations of a block.
//!
//! Burn offers each block of operations to all fusers, one operation after the other. A fuser that is open keeps the
//! block waiting for more. When all are closed, or at a synchronization, the best score runs.
//!
//! A fuser that keeps a block waiting has to take all of it. Burn runs what the best fuser leaves of a block unfused at a
//! synchronization, and runs all blocks unfused if they need each other's rest.

use std::cell::{Cell, OnceCell};

use burn_cubecl::fusion::CubeOptimization;
use burn_cubecl_fusion::optim::elemwise::ElementWiseFuser;
use burn_cubecl_fusion::optim::matmul::MatmulFuser;
use burn_fusion::{FuserProperties, FuserStatus, OperationFuser};
use burn_ir::{OperationIr, TensorIr};
use cubecl::Device;

use super::graph::{Binary, Graph, Node, name};
use super::lower;
use super::pattern::{self, Draft, Miss};
use super::record;
use super::run::NormOptimization;
use super::schedule::{check_passes, schedule};
use super::segments::{Segments, is_fused_behind};
use crate::install::DeclineReason;

/// Operations of a block that the fuser waits for. A norm has about 12.
const MOST_OPERATIONS: usize = 256;

/// Operations of a block without a reduction that the fuser waits for. A batch norm with an activation has 25.
const MOST_IN_FRONT: usize = 32;

/// Operations between a reshape and the first reduction: a residual, a cast and a square.
const MOST_BEHIND_RESHAPE: usize = 4;

/// Operations that the report names: a norm and some of what is in front of it.
const MOST_NAMED: usize = 16;

/// Score of each norm. Burn's scores are at most some thousands.
const NORM: u64 = 1_000_000;

/// Score of a block without a norm that only this fuser keeps waiting.
const WAITED: u64 = NORM / 2;

/// A part of a block that looks like a norm, and is left to Burn.
#[derive(Debug, Clone)]
struct Declined {
    /// The operation that divides by the deviation.
    root: usize,
    reason: DeclineReason,
}

/// The norms of a block, and what looks like one.
#[derive(Debug, Clone, Default)]
struct Found {
    norms: Vec<Draft>,
    declined: Vec<Declined>,
}

/// Finds the norms of a block, each with as much of what follows as the kernels apply too.
fn find(operations: &[OperationIr]) -> Found {
    let mut graph = Graph::new(operations);
    let mut norms: Vec<(usize, Draft)> = Vec::new();
    let mut declined = Vec::new();
    for root in 0..graph.len() {
        if graph.is_claimed(root) || !pattern::may_end(graph.node(root)) {
            continue;
        }
        let draft = match pattern::find(&graph, root) {
            Ok(draft) => lower::check(&draft).map(|()| draft),
            Err(Miss::NotANorm) => continue,
            Err(Miss::Declined(reason)) => Err(reason),
        };
        match draft {
            Ok(draft) => {
                graph.claim(&draft.taken);
                norms.push((root, draft));
            }
            Err(reason) => declined.push(Declined { root, reason }),
        }
    }
    // One that is left to Burn may be a reason to leave another one too.
    while let Some((at, reason)) = misfit(&graph, &norms) {
        let (root, draft) = norms.remove(at);
        graph.release(&draft.taken);
        declined.push(Declined { root, reason });
    }
    // A product in a norm may look like the end of another one.
    declined.retain(|declined| !graph.is_claimed(declined.root));
    Found {
        norms: norms.into_iter().map(|(_, draft)| draft).collect(),
        declined,
    }
}

/// A norm that does not fit in with the rest of the block.
fn misfit(graph: &Graph<'_>, norms: &[(usize, Draft)]) -> Option<(usize, DeclineReason)> {
    let costs = |(at, (_, draft)): (usize, &(usize, Draft))| {
        check_passes(graph, draft).err().map(|reason| (at, reason))
    };
    let misfit = norms.iter().enumerate().find_map(costs);
    misfit.or_else(|| {
        let drafts = norms.iter().map(|(_, draft)| draft);
        let reason = schedule(graph, &drafts.collect::<Vec<_>>()).err()?;
        Some((norms.len() - 1, reason))
    })
}

/// The norms of a whole block.
pub(super) fn norms(operations: &[OperationIr]) -> Vec<Draft> {
    find(operations).norms
}

/// True for a cast or a square, which a norm of an input may begin with.
fn begins_a_norm(node: Node<'_>) -> bool {
    match node {
        Node::Cast(_) => true,
        Node::Binary(Binary::Mul, a, b) => a.id == b.id,
        _ => false,
    }
}

/// Looks for norms in a block.
///
/// While it is open, Burn merges other blocks into its own more freely than without it. So it is open only if a norm is
/// under way: there is a reduction, or what a norm may begin with.
#[derive(Clone)]
pub(super) struct NormFuser {
    device: Device,
    operations: Vec<OperationIr>,
    /// Burn's fusers of what may be in front of a reduction. They tell how much of the block Burn fuses from its head.
    elementwise: ElementWiseFuser,
    matmul: MatmulFuser,
    /// Operations that it waited for, once it is closed.
    closed_at: Option<usize>,
    found: Found,
    /// True if Burn's fusers do not cover the operations it waited for by one kernel. Made when it is asked for.
    waited: OnceCell<bool>,
    is_reported: Cell<bool>,
}

impl NormFuser {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            operations: Vec::new(),
            elementwise: ElementWiseFuser::new(device.clone()),
            matmul: MatmulFuser::new(device.clone()),
            closed_at: None,
            found: Found::default(),
            waited: OnceCell::new(),
            is_reported: Cell::new(false),
        }
    }

    /// True if a block may go on with an operation: there is one kernel for it and for what is in front of it.
    fn takes(&self, operation: &OperationIr) -> bool {
        match Node::of(operation) {
            // A tensor from the host is there already, and the first operation of its block.
            Node::Init => self.operations.is_empty(),
            Node::Drop => !self.operations.is_empty(),
            // Burn fuses it with what is behind it.
            Node::Matmul => self.operations.is_empty(),
            Node::Other => {
                let may_follow = self.is_fused() || !self.found.norms.is_empty();
                may_follow && is_fused_behind(&self.device, operation)
            }
            _ => true,
        }
    }

    /// True if Burn fuses the whole block so far: it is elementwise, but for a matrix product at its head.
    fn is_fused(&self) -> bool {
        let len = self.operations.len();
        let head = self.operations.first().map(Node::of);
        let is_matmul = matches!(head, Some(Node::Matmul));
        self.elementwise.len() == len || is_matmul && self.matmul.len() == len
    }

    /// True if a norm may still be completed, extended or followed by another one.
    fn waits(&self) -> bool {
        let len = self.operations.len();
        if self.has_reduction() || !self.found.norms.is_empty() {
            return len < MOST_OPERATIONS;
        }
        let mut nodes = self.operations.iter().map(Node::of);
        let fused = self.elementwise.len();
        // The input of a model comes from the host. A group norm begins with a reshape.
        let is_input =
            matches!(nodes.next(), Some(Node::Init | Node::Reshape(_))) && nodes.all(begins_a_norm);
        len < MOST_IN_FRONT
            && (self.is_fused() || is_input || self.shifts() || self.is_behind_reshape(fused))
    }

    fn has_reduction(&self) -> bool {
        let mut nodes = self.operations.iter().map(Node::of);
        nodes.any(pattern::is_reduction)
    }

    /// True if a tensor is subtracted that broadcasts, as the mean of a batch norm. In a batch of one it has the shape of
    /// the input, but a reshape is in front of it.
    fn shifts(&self) -> bool {
        let is_reshaped = |tensor: &TensorIr| {
            self.operations.iter().any(|operation| {
                let makes = |output: &TensorIr| output.id == tensor.id;
                matches!(Node::of(operation), Node::Reshape(_)) && operation.outputs().any(makes)
            })
        };
        self.operations
            .iter()
            .any(|operation| match Node::of(operation) {
                Node::Binary(Binary::Sub, x, mean) => x.shape != mean.shape || is_reshaped(mean),
                _ => false,
            })
    }

    /// True if elementwise operations end with a reshape, and behind it is what a norm begins with. A linear layer's bias is
    /// added to a matrix, and the residual to a tensor of a higher rank.
    fn is_behind_reshape(&self, fused: usize) -> bool {
        let Some((reshape, behind)) = self.operations[fused..].split_first() else {
            return false;
        };
        let is_of_block = |input: &TensorIr| {
            let mut outputs = self.operations[..fused]
                .iter()
                .flat_map(OperationIr::outputs);
            outputs.any(|output| output.id == input.id)
        };
        let begins = |operation: &OperationIr| {
            let node = Node::of(operation);
            matches!(
                node,
                Node::Cast(_) | Node::Drop | Node::Binary(Binary::Add | Binary::Mul, ..)
            )
        };
        let is_reshape = matches!(Node::of(reshape), Node::Reshape(input) if is_of_block(input));
        is_reshape && behind.len() <= MOST_BEHIND_RESHAPE && behind.iter().all(begins)
    }

    fn register(&mut self, operation: &OperationIr) {
        let is_open = self.closed_at.is_none();
        let is_taken = is_open && self.takes(operation);
        if is_open && self.is_fused() {
            self.elementwise.fuse(operation);
            self.matmul.fuse(operation);
        }
        self.operations.push(operation.clone());
        self.find();
        if !is_open {
            return;
        }
        self.waited = OnceCell::new();
        if !(is_taken && self.waits()) {
            // An operation of no norm may begin something else.
            let is_kept = is_taken && !self.found.norms.is_empty();
            self.closed_at = Some(self.operations.len() - usize::from(!is_kept));
        }
    }

    /// Looks for norms, if the last operation may have completed or extended one.
    fn find(&mut self) {
        let last = self.operations.last().map(Node::of);
        let may_end = last.is_some_and(|last| pattern::may_end(last) || matches!(last, Node::Drop));
        let may_have_one = self.has_reduction() || self.shifts();
        let may_change = !self.found.norms.is_empty() || !self.found.declined.is_empty();
        if may_change || may_end && may_have_one {
            self.found = find(&self.operations);
            self.is_reported.set(false);
        }
    }

    /// True if this fuser alone kept the block waiting, and Burn fuses something in it.
    fn waited(&self) -> bool {
        *self.waited.get_or_init(|| {
            let len = self.closed_at.unwrap_or(self.operations.len());
            let all: Vec<usize> = (0..len).collect();
            !self.is_fused()
                && Segments::new(&self.device, &self.operations, &all).are_better_than_one()
        })
    }

    fn report(&self) {
        if self.is_reported.replace(true) {
            return;
        }
        for Declined { root, reason } in &self.found.declined {
            let first = (root + 1).saturating_sub(MOST_NAMED);
            let names: Vec<_> = self.operations[first..=*root].iter().map(name).collect();
            record::declined(&names.join(", "), reason);
        }
    }
}

impl OperationFuser<CubeOptimization> for NormFuser {
    /// A block may grow after all fusers are closed, while another one waits. A norm in that part counts too.
    fn fuse(&mut self, operation: &OperationIr) {
        self.register(operation);
    }

    fn finish(&mut self) -> CubeOptimization {
        let len = self.len();
        let mut operations = std::mem::take(&mut self.operations);
        operations.truncate(len);
        CubeOptimization::new(NormOptimization::new(&self.device, operations))
    }

    fn reset(&mut self) {
        *self = Self::new(&self.device);
    }

    fn status(&self) -> FuserStatus {
        match self.closed_at {
            Some(_) => FuserStatus::Closed,
            None => FuserStatus::Open,
        }
    }

    fn properties(&self) -> FuserProperties {
        self.report();
        match self.found.norms.len() {
            0 => FuserProperties {
                score: WAITED,
                ready: self.waited(),
            },
            norms => FuserProperties {
                score: NORM * norms as u64,
                ready: true,
            },
        }
    }

    /// The whole block. The operation that closed it begins the next block, unless there are more behind it.
    fn len(&self) -> usize {
        let len = self.operations.len();
        match self.closed_at {
            Some(closed_at) if closed_at + 1 == len => closed_at,
            _ => len,
        }
    }

    fn clone_dyn(&self) -> Box<dyn OperationFuser<CubeOptimization>> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Shape};
    use burn_cubecl_fusion::optim::CubeOptimizationState;
    use burn_ir::{
        BinaryOpIr, FloatOperationIr, NumericOperationIr, ReduceDimOpIr, ScalarIr, ScalarOpIr,
        TensorId, TensorStatus, UnaryOpIr,
    };

    use super::*;
    use crate::install::fusion::run::NAME;

    /// A tensor of rows, or a number of each row. It is read for the last time if it is freed.
    fn tensor(id: u64, is_full: bool, is_freed: bool) -> TensorIr {
        TensorIr {
            id: TensorId::new(id),
            shape: Shape::from([1, if is_full { 2 } else { 0 }]),
            status: match is_freed {
                true => TensorStatus::ReadWrite,
                false => TensorStatus::ReadOnly,
            },
            dtype: DType::F32,
        }
    }

    /// `x / sqrt(mean(x * x) + epsilon)`. The results are the tensors from `first` to `first + 4`.
    fn rms_norm(x: u64, first: u64) -> Vec<OperationIr> {
        let numeric = |operation| OperationIr::NumericFloat(DType::F32, operation);
        vec![
            numeric(NumericOperationIr::Mul(BinaryOpIr {
                lhs: tensor(x, true, false),
                rhs: tensor(x, true, false),
                out: tensor(first, true, false),
            })),
            numeric(NumericOperationIr::MeanDim(ReduceDimOpIr {
                input: tensor(first, true, true),
                out: tensor(first + 1, false, false),
                axis: 1,
                accumulator_len: 1,
            })),
            numeric(NumericOperationIr::AddScalar(ScalarOpIr {
                lhs: tensor(first + 1, false, true),
                rhs: ScalarIr::UInt(first),
                out: tensor(first + 2, false, false),
            })),
            OperationIr::Float(
                DType::F32,
                FloatOperationIr::Sqrt(UnaryOpIr {
                    input: tensor(first + 2, false, true),
                    out: tensor(first + 3, false, false),
                }),
            ),
            numeric(NumericOperationIr::Div(BinaryOpIr {
                lhs: tensor(x, true, true),
                rhs: tensor(first + 3, false, true),
                out: tensor(first + 4, true, false),
            })),
        ]
    }

    #[test]
    fn finds_each_norm_of_a_block() {
        let block = [rms_norm(0, 10), rms_norm(14, 20), rms_norm(1, 30)].concat();
        let outputs: Vec<u64> = norms(&block)
            .iter()
            .map(|norm| norm.output.id.value())
            .collect();
        assert_eq!(outputs, [14, 24, 34]);
    }

    #[test]
    fn leaves_a_norm_whose_root_lives() {
        let mut block = rms_norm(0, 10);
        let OperationIr::NumericFloat(_, NumericOperationIr::Div(root)) = &mut block[4] else {
            panic!("the last operation divides");
        };
        root.rhs = tensor(13, false, false);
        let found = find(&block);
        assert!(found.norms.is_empty());
        let reason = &found.declined[0].reason;
        assert!(
            matches!(reason, DeclineReason::IntermediateRead { .. }),
            "{reason}"
        );
    }

    #[test]
    fn stored_operations_have_the_same_norms() {
        let block = [rms_norm(0, 10), rms_norm(14, 20)].concat();
        let stored = CubeOptimizationState::new(NAME, &block);
        let restored: Vec<OperationIr> = stored.decode();
        assert_eq!(restored, block);
        assert_eq!(norms(&restored).len(), 2);
    }
}
