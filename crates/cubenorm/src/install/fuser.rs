//! The fuser that competes with Burn's for the operations of a block.
//!
//! Burn offers each block of operations to all fusers, one operation after the other. A fuser that is open keeps the
//! block waiting for more. When all are closed, or at a synchronization, the best score runs.

use std::cell::Cell;
use std::sync::Arc;

use burn_cubecl::fusion::CubeOptimization;
use burn_cubecl_fusion::optim::elemwise::ElementWiseFuser;
use burn_fusion::{FuserProperties, FuserStatus, OperationFuser};
use burn_ir::OperationIr;
use cubecl::Device;

use super::graph::{Graph, Node, name};
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

/// Operations behind a complete norm that the fuser waits for: an activation has up to 11.
const MOST_BEHIND: usize = 14;

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
    candidate: String,
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
                let names: Vec<_> = operations[..=root].iter().map(name).collect();
                declined.get_or_insert(Declined {
                    candidate: names.join(", "),
                    reason,
                });
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
pub(super) struct NormFuser {
    device: Device,
    operations: Vec<OperationIr>,
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
            elementwise: ElementWiseFuser::new(device.clone()),
            status: FuserStatus::Open,
            found: None,
            declined: None,
            is_reported: Cell::new(false),
        }
    }

    /// True if Burn's elementwise fuser does not cover the block, so that only this one may keep it waiting.
    fn holds_alone(&self) -> bool {
        self.operations.len() > self.elementwise.len().max(1)
    }

    /// True if a norm may still be completed or extended.
    fn waits(&self) -> bool {
        if let Some(found) = &self.found {
            return self.operations.len() - found.schedule.len <= MOST_BEHIND;
        }
        let mut nodes = self.operations.iter().map(Node::of);
        let most = match nodes.any(pattern::is_reduction) {
            true => MOST_OPERATIONS,
            false => MOST_IN_FRONT,
        };
        self.operations.len() < most
    }

    fn register(&mut self, operation: &OperationIr) {
        let node = Node::of(operation);
        let starts_another = self.found.is_some() && pattern::is_reduction(node);
        if matches!(node, Node::Other) || starts_another {
            self.close();
            return;
        }
        if self.operations.is_empty() && matches!(node, Node::Drop) {
            self.close();
            return;
        }
        self.operations.push(operation.clone());
        self.elementwise.fuse(operation);
        let (found, declined) = find(&self.operations);
        self.found = found.map(Arc::new);
        self.declined = declined;
        self.is_reported.set(false);
        if !self.waits() {
            self.close();
        }
    }

    fn close(&mut self) {
        self.status = FuserStatus::Closed;
    }

    fn report(&self) {
        if self.is_reported.replace(true) || self.found.is_some() {
            return;
        }
        if let Some(Declined { candidate, reason }) = &self.declined {
            report::declined(candidate, reason);
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
            elementwise: self.elementwise.clone(),
            status: self.status,
            found: self.found.clone(),
            declined: self.declined.clone(),
            is_reported: self.is_reported.clone(),
        })
    }
}
