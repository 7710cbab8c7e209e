//! Operations of a block as Burn runs them: its fusers' kernels, and single operations.

use burn_cubecl::fusion::CubeOptimization;
use burn_cubecl_fusion::optim::elemwise::ElementWiseFuser;
use burn_cubecl_fusion::optim::reduce::{ReduceFuser, ReduceSettings};
use burn_cubecl_fusion::optim::reduce_broadcasted::ReduceBroadcastedFuser;
use burn_cubecl_fusion::{CubeFusionHandle, FallbackOperation};
use burn_fusion::stream::Context;
use burn_fusion::{FuserStatus, OperationFuser};
use burn_ir::OperationIr;
use cubecl::Device;

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
        let mut segments = Vec::new();
        let mut rest = positions;
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

/// The best fusion of the first operations, and their number.
fn fuse(
    device: &Device,
    block: &[OperationIr],
    positions: &[usize],
) -> Option<(CubeOptimization, usize)> {
    let fusers: [Box<dyn OperationFuser<CubeOptimization>>; 3] = [
        Box::new(ElementWiseFuser::new(device.clone())),
        Box::new(ReduceFuser::new(device.clone(), ReduceSettings::Always)),
        Box::new(ReduceBroadcastedFuser::new(device.clone())),
    ];
    let mut best: Option<(u64, Box<dyn OperationFuser<CubeOptimization>>)> = None;
    for mut fuser in fusers {
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
