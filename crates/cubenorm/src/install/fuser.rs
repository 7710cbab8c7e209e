//! The fuser that competes with Burn's for the operations of a block.
//!
//! Burn offers each block of operations to all fusers, one operation after the other. A fuser that is open keeps the
//! block waiting for more. When all are closed, or at a synchronization, the best score runs.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use burn_cubecl::fusion::CubeOptimization;
use burn_cubecl_fusion::optim::elemwise::ElementWiseFuser;
use burn_fusion::{FuserProperties, FuserStatus, OperationFuser};
use burn_ir::{OperationIr, TensorId, TensorIr};
use cubecl::Device;

use super::graph::{Binary, Graph, Node, name};
use super::lower;
use super::pattern::{self, Draft, Miss};
use super::reason::DeclineReason;
use super::report;
use super::run::NormOptimization;
use super::schedule::{Schedule, check_passes, schedule};

/// Operations of a block that the fuser looks at. A norm with reshapes, casts and an activation has about 30.
const MOST_OPERATIONS: usize = 64;

/// Operations of a block without a reduction that the fuser looks at. A batch norm with an activation has 25.
const MOST_IN_FRONT: usize = 32;

/// Operations between a reshape and the first reduction: a residual, a cast and a square.
const MOST_BEHIND_RESHAPE: usize = 4;

/// Operations behind a norm with an intermediate that may be dropped, or a result that may be cast.
const MOST_DROPS: usize = 5;

/// Operations behind a complete norm that the fuser waits for: an activation has up to 11.
const MOST_BEHIND: usize = 14;

/// True for a cast or a square, which a norm of an input may begin with.
fn begins_a_norm(node: Node<'_>) -> bool {
    match node {
        Node::Cast(_) => true,
        Node::Binary(Binary::Mul, a, b) => a.id == b.id,
        _ => false,
    }
}

/// Score of a norm. Burn's scores are at most some thousands.
const NORM: u64 = 1_000_000;

/// A norm in a block.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) draft: Draft,
    pub(super) schedule: Schedule,
}

/// A part of a block that looks like a norm, and is left to Burn.
#[derive(Debug, Clone)]
struct Declined {
    /// The operation that divides by the deviation.
    root: usize,
    reason: DeclineReason,
}

/// Finds the first norm of a block, with as much of what follows as the kernels apply too.
fn find(operations: &[OperationIr]) -> (Option<Match>, Option<Declined>) {
    let graph = Graph::new(operations);
    let mut declined = None;
    for root in 0..graph.len() {
        if !pattern::may_end(graph.node(root)) {
            continue;
        }
        let found = match pattern::find(&graph, root) {
            Ok(draft) => checked(&graph, draft),
            Err(Miss::NotANorm) => continue,
            Err(Miss::Declined(reason)) => Err(reason),
        };
        match found {
            Ok(found) => return (Some(found), None),
            Err(reason) => {
                declined.get_or_insert(Declined { root, reason });
            }
        }
    }
    (None, declined)
}

fn checked(graph: &Graph<'_>, draft: Draft) -> Result<Match, DeclineReason> {
    lower::check(&draft)?;
    let schedule = schedule(graph, &draft)?;
    check_passes(graph, &draft, &schedule)?;
    Ok(Match { draft, schedule })
}

/// Finds a norm in operations that are known to be a whole block.
pub(super) fn find_in(operations: &[OperationIr]) -> Option<Match> {
    find(operations).0
}

/// Looks for a norm in a block.
///
/// While it is open, Burn merges other blocks into its own more freely than without it. A block that is merged of unrelated
/// operations may depend on others that depend on it, and then Burn runs all of them unfused. So this fuser is open only if
/// a norm is under way: there is a reduction, or what a norm may begin with.
pub(super) struct NormFuser {
    device: Device,
    operations: Vec<OperationIr>,
    /// Tensors of the operations.
    tensors: HashSet<TensorId>,
    /// Burn's elementwise fuser, which tells how much of the block Burn fuses from its head.
    elementwise: ElementWiseFuser,
    status: FuserStatus,
    found: Option<Arc<Match>>,
    declined: Option<Declined>,
    is_reported: Cell<bool>,
}

impl NormFuser {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            operations: Vec::new(),
            tensors: HashSet::new(),
            elementwise: ElementWiseFuser::new(device.clone()),
            status: FuserStatus::Open,
            found: None,
            declined: None,
            is_reported: Cell::new(false),
        }
    }

    /// True if the elementwise fuser does not cover the block, so that only this one may keep it waiting.
    fn holds_alone(&self) -> bool {
        self.operations.len() > self.elementwise.len()
    }

    /// True if a norm may still be completed or extended.
    fn waits(&self) -> bool {
        let len = self.operations.len();
        if let Some(found) = &self.found {
            return len - found.schedule.len <= MOST_BEHIND;
        }
        if let Some(Declined { root, reason }) = &self.declined {
            // A drop may follow, after which nothing reads the intermediate, or a cast to the dtype of the input.
            let may_fit = matches!(
                reason,
                DeclineReason::IntermediateRead { .. }
                    | DeclineReason::Surrounded { .. }
                    | DeclineReason::DType { .. }
            );
            return may_fit && len - root <= MOST_DROPS;
        }
        let mut nodes = self.operations.iter().map(Node::of);
        if self.has_reduction() {
            return len < MOST_OPERATIONS;
        }
        let fused = self.elementwise.len();
        let is_elementwise = fused == len;
        // The input of a model comes from the host. A group norm begins with a reshape.
        let is_input =
            matches!(nodes.next(), Some(Node::Init | Node::Reshape(_))) && nodes.all(begins_a_norm);
        len < MOST_IN_FRONT
            && (is_elementwise || is_input || self.shifts() || self.is_behind_reshape(fused))
    }

    fn has_reduction(&self) -> bool {
        let mut nodes = self.operations.iter().map(Node::of);
        nodes.any(pattern::is_reduction)
    }

    /// True if a tensor is subtracted that broadcasts, as the mean of a batch norm.
    fn shifts(&self) -> bool {
        self.operations
            .iter()
            .any(|operation| match Node::of(operation) {
                Node::Binary(Binary::Sub, x, mean) => x.shape != mean.shape,
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

    /// True if an operation reads or writes a tensor of the block, or makes a parameter.
    fn belongs(&self, operation: &OperationIr) -> bool {
        let is_param = matches!(Node::of(operation), Node::Reshape(_) | Node::Cast(_));
        let mut nodes = operation.nodes().into_iter();
        self.operations.is_empty() || is_param || nodes.any(|node| self.tensors.contains(&node.id))
    }

    fn register(&mut self, operation: &OperationIr) {
        let node = Node::of(operation);
        let starts_another = self.found.is_some() && pattern::is_reduction(node);
        let is_first_drop = self.operations.is_empty() && matches!(node, Node::Drop);
        let is_late_init = !self.operations.is_empty() && matches!(node, Node::Init);
        if matches!(node, Node::Other)
            || starts_another
            || is_first_drop
            || is_late_init
            || !self.belongs(operation)
        {
            self.close();
            return;
        }
        let elementwise = self.elementwise.clone();
        self.elementwise.fuse(operation);
        self.operations.push(operation.clone());
        self.find();
        if self.waits() {
            self.tensors
                .extend(operation.nodes().iter().map(|node| node.id));
            return;
        }
        self.close();
        if self.found.is_none() && self.operations.len() > 1 {
            // It is left to Burn, which may fuse it with what follows.
            self.operations.pop();
            self.elementwise = elementwise;
        }
    }

    /// Looks for a norm, if the last operation may have completed or extended one.
    fn find(&mut self) {
        let last = self.operations.last().map(Node::of);
        let may_end = last.is_some_and(|last| pattern::may_end(last) || matches!(last, Node::Drop));
        let may_have_one = self.has_reduction() || self.shifts();
        let may_change = self.found.is_some() || self.declined.is_some();
        if !(may_change || may_end && may_have_one) {
            return;
        }
        let (found, declined) = find(&self.operations);
        self.found = found.map(Arc::new);
        self.declined = declined;
        self.is_reported.set(false);
    }

    fn close(&mut self) {
        self.status = FuserStatus::Closed;
    }

    fn report(&self) {
        if self.is_reported.replace(true) || self.found.is_some() {
            return;
        }
        if let Some(Declined { root, reason }) = &self.declined {
            // The root itself may have been left to Burn.
            let names: Vec<_> = self.operations.iter().take(root + 1).map(name).collect();
            report::declined(&names.join(", "), reason);
        }
    }
}

impl OperationFuser<CubeOptimization> for NormFuser {
    fn fuse(&mut self, operation: &OperationIr) {
        if self.status == FuserStatus::Open {
            self.register(operation);
        }
    }

    fn finish(&mut self) -> CubeOptimization {
        let len = self.len();
        self.operations.truncate(len);
        CubeOptimization::new(NormOptimization::new(
            &self.device,
            std::mem::take(&mut self.operations),
            self.found.take(),
        ))
    }

    fn reset(&mut self) {
        *self = Self::new(&self.device);
    }

    fn status(&self) -> FuserStatus {
        self.status
    }

    fn properties(&self) -> FuserProperties {
        self.report();
        match &self.found {
            Some(found) => FuserProperties {
                score: NORM + found.schedule.len as u64,
                ready: true,
            },
            // Burn runs a block unfused up to where the last fuser closed. Such a block is offered as Burn would fuse
            // it, with the least score.
            None => FuserProperties {
                score: 1,
                ready: self.holds_alone(),
            },
        }
    }

    fn len(&self) -> usize {
        match &self.found {
            Some(found) => found.schedule.len,
            None => self.operations.len(),
        }
    }

    fn clone_dyn(&self) -> Box<dyn OperationFuser<CubeOptimization>> {
        Box::new(Self {
            device: self.device.clone(),
            operations: self.operations.clone(),
            tensors: self.tensors.clone(),
            elementwise: self.elementwise.clone(),
            status: self.status,
            found: self.found.clone(),
            declined: self.declined.clone(),
            is_reported: self.is_reported.clone(),
        })
    }
}
