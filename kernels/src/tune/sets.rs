//! The buffers that measured launches take in turn.

use cubecl::prelude::*;
use cubenorm_core::{GradientDesc, Hardware, NormDesc, StrategyChoice, TensorDesc};

use crate::gradient::{GradientTensors, launch_gradient};
use crate::launch::args::allocate;
use crate::launch::{ForwardTensors, launch_forward};

/// Bytes of all sets together: more than a CPU's caches hold.
const BEYOND_CACHES: usize = 1 << 26;

/// Bytes of a set below which there is one: it stays in the caches of the cores.
const LEAST: usize = 1 << 21;

/// Sets of buffers of so many bytes each that launches take in turn to measure what a pass takes on a device.
///
/// On a CPU the fastest plan from a cache may be the slowest from memory, where the copy that it is compared with finds its
/// tensors as well, and a network that is larger than a cache. Measured with AVX-512: what was the fastest from a cache took
/// 1.18 to 1.3 times the time of the analytic plan from memory in layer norm of 256, 384 and 768 floats. A GPU's caches are
/// smaller than what is worth measuring.
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

/// So many sets, the first of them with the caller's own tensors to read. A result is an input like any other where it has
/// the input's layout; elsewhere there is one set. All memory has been written to, so that no measured launch is the first
/// to touch it.
pub(super) fn forward_sets(
    client: &Client,
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
        // What cannot be launched is an error of each candidate.
        let _ = launch_forward(client, desc, &set, StrategyChoice::Inferred);
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

/// The same of a gradient.
pub(super) fn gradient_sets(
    client: &Client,
    desc: &GradientDesc,
    tensors: &GradientTensors,
    count: usize,
) -> Vec<GradientTensors> {
    let gradient = desc.input_gradient.as_ref();
    let written = |read: GradientTensors| {
        let set = GradientTensors {
            input_gradient: gradient.map(|desc| allocate(client, desc)),
            ..read
        };
        let _ = launch_gradient(client, desc, &set, StrategyChoice::Inferred);
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
        written(read)
    });
    let mut sets = vec![written(tensors.clone())];
    sets.extend(others);
    sets
}
