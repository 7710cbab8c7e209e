//! Buffers that a kernel fills with a constant before a launch reads them.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{DType, Kernel, TensorDesc};

use super::args::flat_arg;
use super::memory::{allocate_bytes, bytes, launched};

/// Allocates a buffer for a tensor and fills it with zeros.
pub(crate) fn zeros(client: &Client, desc: &TensorDesc) -> Handle {
    filled(client, bytes(desc), [0; 2])
}

/// Allocates a buffer for a tensor of an accumulation type and fills it with NaN.
pub(crate) fn nans(client: &Client, desc: &TensorDesc) -> Handle {
    let words = match desc.dtype {
        DType::F64 => {
            let bits = f64::NAN.to_bits();
            [bits as u32, (bits >> 32) as u32]
        }
        // No other dtype is an accumulation type.
        DType::F32 | DType::F16 | DType::BF16 => [f32::NAN.to_bits(); 2],
    };
    filled(client, bytes(desc), words)
}

/// Allocates `words` zeroed 64-bit words.
pub(crate) fn zeroed_words(client: &Client, words: usize) -> Handle {
    filled(client, 8 * words, [0; 2])
}

/// Allocates at least `bytes` bytes of alternating 32-bit words. A kernel writes them, because a
/// graph records launches and no writes of the host.
fn filled(client: &Client, bytes: usize, [even, odd]: [u32; 2]) -> Handle {
    const UNITS: u32 = 256;
    const MAX_CUBES: usize = 1024;
    let numbers = bytes.div_ceil(4);
    let handle = allocate_bytes(client, 4 * numbers);
    let units = UNITS.min(client.properties().hardware.max_units_per_cube);
    let cubes = numbers.div_ceil(units as usize).min(MAX_CUBES) as u32;
    // SAFETY:
    // 1. `handle` holds `numbers` 4-byte elements, allocated above.
    // 2. A unit writes only at positions below `numbers`. The kernel reads nothing.
    unsafe {
        fill::launch_unchecked(
            client,
            CubeCount::Static(cubes, 1, 1),
            CubeDim::new_1d(units),
            flat_arg(&handle, numbers),
            numbers,
            even,
            odd,
        );
    }
    launched(client, Kernel::Zero);
    handle
}

#[cube(launch_unchecked)]
#[allow(
    clippy::manual_is_multiple_of,
    reason = "kernels have no such function"
)]
fn fill(numbers: &mut Tensor<u32>, count: usize, even: u32, odd: u32) {
    let mut place = ABSOLUTE_POS;
    while place < count {
        numbers[place] = select(place % 2 == 0, even, odd);
        place += CUBE_COUNT * (CUBE_DIM as usize);
    }
}
