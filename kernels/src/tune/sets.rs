//! Sets of buffers that measured launches rotate through.

use cubecl::prelude::*;
use cubenorm_core::{BackwardDesc, Hardware, NormDesc, TensorDesc};

use crate::launch::memory::allocate;
use crate::launch::{BackwardTensors, ForwardTensors, PlannedBackward, PlannedForward};

/// Bytes of all sets together: more than the last-level cache of a CPU.
const BEYOND_CACHES: usize = 1 << 26;

/// Bytes of a set below which one is enough: it stays in the cores' caches in use, too.
const LEAST: usize = 1 << 21;

/// Number of buffer sets, of `bytes` bytes each, that measured launches rotate through.
///
/// On a CPU the fastest plan for cached data may be the slowest for data in memory. Networks larger
/// than a cache have their data in memory. A GPU's caches are smaller than any working set worth
/// measuring.
///
/// `256 to 768 f32 AVX-512, plan tuned in cache, run from memory: 0.77x to 0.85x of the analytic
/// plan`
///
/// # Example
///
/// ```
/// use cubenorm_core::Hardware;
/// use cubenorm_kernels::working_sets;
///
/// assert_eq!(working_sets(&Hardware::cpu(8, 512), 8 << 20), 8);
/// assert_eq!(working_sets(&Hardware::cpu(8, 512), 1 << 20), 1);
/// assert_eq!(working_sets(&Hardware::cuda(132), 8 << 20), 1);
/// ```
pub fn working_sets(hardware: &Hardware, bytes: usize) -> usize {
    match hardware.is_gpu() || bytes < LEAST {
        true => 1,
        false => BEYOND_CACHES.div_ceil(bytes),
    }
}

/// Allocates `count` sets, and writes to each by the analytic plan. The first reads the caller's own tensors. If output and input have equal
/// layouts, an output is the input of another set; otherwise there is one set. All memory is
/// touched before the measurement.
pub(super) fn forward_sets(
    client: &Client,
    analytic: &PlannedForward,
    desc: &NormDesc,
    output: &TensorDesc,
    tensors: &ForwardTensors,
    count: usize,
) -> Vec<ForwardTensors> {
    let written = |read: ForwardTensors| {
        let set = ForwardTensors {
            output: Some(allocate(client, output)),
            ..read
        };
        // A description that cannot be launched fails in each candidate.
        let _ = analytic.launch(client, &set);
        set
    };
    let result = || written(tensors.clone()).output;
    let count = if desc.input == *output { count } else { 1 };
    let others = (1..count).map(|_| {
        let mut read = tensors.clone();
        read.input = result().unwrap_or(read.input);
        if desc.residual.as_ref() == Some(output) {
            read.residual = result();
        }
        written(read)
    });
    let mut sets = vec![written(tensors.clone())];
    sets.extend(others);
    sets
}

/// [`forward_sets`] of a backward pass.
pub(super) fn backward_sets(
    client: &Client,
    analytic: &PlannedBackward,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    count: usize,
) -> Vec<BackwardTensors> {
    let gradient = desc.input_gradient.as_ref();
    let written = |read: BackwardTensors| {
        let set = BackwardTensors {
            input_gradient: gradient.map(|desc| allocate(client, desc)),
            ..read
        };
        let _ = analytic.launch(client, &set);
        set
    };
    let result = || written(tensors.clone()).input_gradient;
    let is_alike = [&desc.norm.input, &desc.output_gradient]
        .into_iter()
        .all(|tensor| Some(tensor) == gradient);
    let count = if is_alike { count } else { 1 };
    let others = (1..count).map(|_| {
        let mut read = tensors.clone();
        read.input = result().unwrap_or(read.input);
        read.output_gradient = result().unwrap_or(read.output_gradient);
        if desc.sum_gradient.is_some() {
            read.sum_gradient = result();
        }
        if desc.gate().is_some_and(|gate| Some(gate) == gradient) {
            read.gate = result();
        }
        written(read)
    });
    let mut sets = vec![written(tensors.clone())];
    sets.extend(others);
    sets
}
