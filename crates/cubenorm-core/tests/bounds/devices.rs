//! Devices that are not there.

use cubenorm_core::Hardware;

use crate::problems::Numbers;

/// A device of some kind.
pub(crate) fn device(numbers: &mut Numbers) -> Hardware {
    match numbers.below(10) {
        0..3 => {
            let cores = numbers.one_of(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
            let bits = numbers.one_of(&[128, 256, 512]);
            Hardware {
                register_bits: numbers.one_of(&[16, 32]) * bits,
                nontemporal_threshold: numbers.one_of(&[None, Some(8 << 20), Some(64 << 20)]),
                ..Hardware::cpu(cores, bits)
            }
        }
        3 => Hardware::webgpu(),
        4 => lavapipe(numbers.one_of(&[1, 2, 4, 16])),
        5 => swiftshader(numbers.one_of(&[2, 8])),
        6 => Hardware {
            max_shared_memory: numbers.one_of(&[48 << 10, 227 << 10]),
            ..Hardware::cuda(numbers.one_of(&[16, 82, 132]))
        },
        7 => rocm(),
        8 => apple(),
        _ => numbers.one_of(&[mali(), powervr(), adreno()]),
    }
}

/// Mesa's Vulkan driver that runs on a CPU.
fn lavapipe(cores: u32) -> Hardware {
    Hardware {
        max_units_per_cube: 1024,
        max_cube_dim: [1024, 1024, 1024],
        max_shared_memory: 32 << 10,
        max_bindings: 31,
        ..Hardware::cpu_vulkan(cores)
    }
}

/// Chromium's Vulkan driver that runs on a CPU.
fn swiftshader(cores: u32) -> Hardware {
    Hardware {
        max_bindings: 9,
        ..Hardware::cpu_vulkan(cores)
    }
}

/// An AMD GPU under HIP, with planes of 64.
fn rocm() -> Hardware {
    Hardware {
        plane_size: Some(64),
        max_shared_memory: 64 << 10,
        inter_cube_atomics: false,
        ..Hardware::cuda(304)
    }
}

/// An Apple GPU under Metal.
fn apple() -> Hardware {
    Hardware {
        plane_size: Some(32),
        max_units_per_cube: 1024,
        max_cube_dim: [1024, 1024, 1024],
        max_shared_memory: 32 << 10,
        max_bindings: 31,
        ..Hardware::webgpu()
    }
}

fn mali() -> Hardware {
    Hardware {
        plane_size: Some(16),
        max_units_per_cube: 384,
        max_cube_dim: [384, 384, 384],
        max_shared_memory: 32 << 10,
        ..Hardware::webgpu()
    }
}

fn powervr() -> Hardware {
    Hardware {
        plane_size: Some(32),
        max_units_per_cube: 512,
        max_cube_dim: [512, 512, 64],
        max_shared_memory: 16 << 10,
        ..Hardware::webgpu()
    }
}

/// A GPU whose planes differ in size, so that a plan has none.
fn adreno() -> Hardware {
    Hardware {
        max_units_per_cube: 1024,
        max_cube_dim: [1024, 1024, 64],
        max_shared_memory: 32 << 10,
        max_bindings: 24,
        ..Hardware::webgpu()
    }
}
