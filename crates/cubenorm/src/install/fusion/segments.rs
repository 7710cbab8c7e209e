//! Operations of a block as Burn runs them: in the kernels of its fusers, or one by one.

use std::collections::{HashMap, HashSet};

use burn_cubecl::fusion::CubeOptimization;
use burn_cubecl_fusion::optim::elemwise::ElementWiseFuser;
use burn_cubecl_fusion::optim::matmul::MatmulFuser;
use burn_cubecl_fusion::optim::nhwc_relayout::NHWCRelayoutFuser;
use burn_cubecl_fusion::optim::reduce::{ReduceFuser, ReduceSettings};
use burn_cubecl_fusion::optim::reduce_broadcasted::ReduceBroadcastedFuser;
use burn_cubecl_fusion::{CubeFusionHandle, FallbackOperation};
use burn_fusion::stream::Context;
use burn_fusion::{FuserStatus, OperationFuser};
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use cubecl::Device;

use super::graph::Node;

/// Runs the operation at a position of the block unfused.
pub(super) type Fallback<'a> = &'a dyn Fn(usize) -> Box<dyn FallbackOperation>;

/// Operations of a block, in kernels of Burn's.
pub(super) struct Segments(Vec<Segment>);

struct Segment {
    /// Positions in the block.
    operations: Vec<usize>,
    /// None for one operation that Burn does not fuse.
    fused: Option<CubeOptimization>,
}

impl Segments {
    /// Fuses operations greedily, as Burn's search does: at each, the fuser with the best score.
    pub(super) fn new(device: &Device, block: &[OperationIr], positions: &[usize]) -> Self {
        let (reshapes, others) = split_reshapes(block, positions);
        let alone = |at: usize| Segment {
            operations: vec![at],
            fused: None,
        };
        let mut segments: Vec<Segment> = reshapes.into_iter().map(alone).collect();
        let mut rest = others.as_slice();
        while !rest.is_empty() {
            let (fused, len) = match fuse(device, block, rest) {
                Some((fused, len)) => (Some(fused), len),
                None => (None, 1),
            };
            let (operations, next) = rest.split_at(len);
            segments.push(Segment {
                operations: operations.to_vec(),
                fused,
            });
            rest = next;
        }
        Self(segments)
    }

    /// True if there are several, and something is fused in them.
    pub(super) fn are_better_than_one(&self) -> bool {
        self.0.len() > 1 && self.0.iter().any(|segment| segment.fused.is_some())
    }

    pub(super) fn run(&mut self, context: &mut Context<CubeFusionHandle>, fallback: Fallback<'_>) {
        for segment in &mut self.0 {
            let operations = &segment.operations;
            match &mut segment.fused {
                Some(fused) => fused.run(context, &|at| fallback(operations[at])),
                None => fallback(operations[0]).run(context),
            }
        }
    }
}

/// Splits the reshapes of tensors that are there before from the other operations.
///
/// They copy nothing, so Burn's search has a block for each, such as the scale of a norm. Amid the other operations they
/// would end a fusion.
fn split_reshapes(block: &[OperationIr], positions: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut made: HashSet<TensorId> = HashSet::new();
    let mut reads: HashMap<TensorId, usize> = HashMap::new();
    for &at in positions {
        made.extend(block[at].outputs().map(|output| output.id));
        for input in block[at].inputs() {
            *reads.entry(input.id).or_default() += 1;
        }
    }
    // One that frees its input has to stay behind the input's other readers.
    let may_move = |input: &TensorIr, made: &HashSet<TensorId>| {
        let is_last = input.status == TensorStatus::ReadOnly || reads[&input.id] == 1;
        is_last && !made.contains(&input.id)
    };
    let mut reshapes = Vec::new();
    let mut others = Vec::with_capacity(positions.len());
    for &at in positions {
        match Node::of(&block[at]) {
            Node::Reshape(input) if may_move(input, &made) => {
                block[at].outputs().for_each(|output| {
                    made.remove(&output.id);
                });
                reshapes.push(at);
            }
            _ => others.push(at),
        }
    }
    (reshapes, others)
}

/// A fuser of Burn's.
type Fuser = Box<dyn OperationFuser<CubeOptimization>>;

/// Burn's fusers.
fn fusers(device: &Device) -> [Fuser; 5] {
    [
        Box::new(ElementWiseFuser::new(device.clone())),
        Box::new(MatmulFuser::new(device.clone())),
        Box::new(ReduceFuser::new(device.clone(), ReduceSettings::Always)),
        Box::new(ReduceBroadcastedFuser::new(device.clone())),
        Box::new(NHWCRelayoutFuser::new(device.clone())),
    ]
}

/// True for an elementwise operation or a reduction, which Burn may fuse with what is in front of it.
pub(super) fn is_fused_behind(device: &Device, operation: &OperationIr) -> bool {
    let mut elementwise = ElementWiseFuser::new(device.clone());
    let mut reduce = ReduceFuser::new(device.clone(), ReduceSettings::Always);
    elementwise.fuse(operation);
    reduce.fuse(operation);
    elementwise.len() + reduce.len() > 0
}

/// The best fusion of the first operations, and their number.
fn fuse(
    device: &Device,
    block: &[OperationIr],
    positions: &[usize],
) -> Option<(CubeOptimization, usize)> {
    let mut best: Option<(u64, Fuser)> = None;
    for mut fuser in fusers(device) {
        for &at in positions {
            fuser.fuse(&block[at]);
            if fuser.status() == FuserStatus::Closed {
                break;
            }
        }
        let properties = fuser.properties();
        let least = best.as_ref().map_or(0, |(score, _)| *score);
        // A fusion that saves nothing is worse than none.
        if properties.ready && properties.score > least {
            best = Some((properties.score, fuser));
        }
    }
    let (_, mut fuser) = best?;
    let fused = fuser.finish();
    let len = fused.num_ops_fused();
    (1..=positions.len()).contains(&len).then_some((fused, len))
}
