use burn::tensor::Device;

/// What the runtime's allocator had in use during one step of training, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Kept between the forward pass and the backward pass, on top of what was there before.
    pub kept: u64,
    /// The most that was in use at once: parameters, the optimizer's state, and what is kept or,
    /// after the backward pass, the gradients.
    pub peak: u64,
}

impl Memory {
    /// From what was in use before the forward pass, after it, and after the backward pass.
    pub(super) fn of(before: u64, forward: u64, backward: u64) -> Self {
        Self {
            kept: forward.saturating_sub(before),
            peak: before.max(forward).max(backward),
        }
    }
}

/// The bytes in use on a device, all that was asked of it computed; `None` where its backend does
/// not say.
pub(super) fn in_use(device: &Device) -> Option<u64> {
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_largest_and_what_is_kept_is_an_increase() {
        let memory = Memory::of(10, 100, 30);
        assert_eq!(
            memory,
            Memory {
                kept: 90,
                peak: 100
            }
        );
        // A device may free what was there before.
        assert_eq!(Memory::of(10, 8, 30), Memory { kept: 0, peak: 30 });
    }
}
