use burn::tensor::Device;

/// Memory that the runtime's allocator has in use during a training step, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Increase from before the forward pass to before the backward pass.
    pub kept: u64,
    /// Maximum in use: parameters, state of the optimizer, and saved tensors or gradients.
    pub peak: u64,
}

impl Memory {
    /// Computed from the use before the forward pass, after it, and after the backward pass.
    pub(super) fn of(before: u64, forward: u64, backward: u64) -> Self {
        Self {
            kept: forward.saturating_sub(before),
            peak: before.max(forward).max(backward),
        }
    }
}

/// Bytes in use on a device after all pending work. None if the backend does not report them.
pub(super) fn in_use(device: &Device) -> Option<u64> {
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_a_maximum_and_kept_is_an_increase() {
        let memory = Memory::of(10, 100, 30);
        assert_eq!(
            memory,
            Memory {
                kept: 90,
                peak: 100
            }
        );
        // A device may free earlier allocations.
        assert_eq!(Memory::of(10, 8, 30), Memory { kept: 0, peak: 30 });
    }
}
