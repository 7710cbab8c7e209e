//! Device properties as CubeCL's runtimes report them, as far as plans and kernels depend on them.

use cubecl::ir::features::{AtomicUsage, Plane, TypeUsage};
use cubecl::ir::{
    AddressType, DeviceIdentity, DeviceProperties, ElemType, FloatKind, HardwareProperties,
    IntKind, MemoryDeviceProperties, PhysicalDevice, Type, UIntKind,
};
use cubecl::profile::TimingMethod;

use crate::Target;

/// A device, and the compilation targets of its kernels.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name of the device.
    pub name: &'static str,
    /// Name of its CubeCL runtime.
    pub runtime: &'static str,
    /// Properties that the runtime reports.
    pub properties: DeviceProperties,
    /// Compilation targets of the runtime on this device.
    pub targets: Vec<Target>,
}

impl Profile {
    /// One device of each kind, with the most common one of a language first.
    pub fn all() -> Vec<Self> {
        vec![
            Self::nvidia(90),
            Self::nvidia(80),
            Self::nvidia(100),
            Self::amd("gfx1030"),
            Self::amd("gfx90a"),
            Self::apple(),
            Self::native_wgsl(),
            Self::browser(),
            Self::software_wgsl(),
            Self::small_software_wgsl(),
            Self::vulkan(),
            Self::older_vulkan(),
            Self::software_vulkan(),
            Self::cpu(),
        ]
    }

    /// An NVIDIA data centre GPU by compute capability: A100, H100 or B200.
    pub fn nvidia(sm: u32) -> Self {
        // Opt-in limit of shared memory per cube.
        let (name, processors, shared) = match sm {
            0..90 => ("A100", 108, 163 << 10),
            90..100 => ("H100", 132, 227 << 10),
            _ => ("B200", 148, 227 << 10),
        };
        let hardware = HardwareProperties {
            max_bindings: 1024,
            max_shared_memory_size: shared,
            max_cube_count: (i32::MAX as u32, 65_535, 65_535),
            num_streaming_multiprocessors: Some(processors),
            max_vector_size: usize::MAX,
            ..gpu(32, 32)
        };
        Self {
            name,
            runtime: "cuda",
            properties: Reported {
                floats: &[FloatKind::F16, FloatKind::BF16, FloatKind::F64],
                has_planes: true,
                wide_addresses: true,
                inter_cube_atomics: true,
                ..Reported::card(name, hardware)
            }
            .into(),
            targets: vec![Target::Ptx { sm }, Target::Cuda { sm }],
        }
    }

    /// An AMD GPU under ROCm by architecture, RX 6900 XT or MI250X. Debian's compiler supports
    /// both.
    pub fn amd(gfx: &'static str) -> Self {
        let (name, plane, processors) = match gfx {
            "gfx90a" => ("MI250X", 64, 110),
            _ => ("RX 6900 XT", 32, 40),
        };
        let hardware = HardwareProperties {
            max_bindings: 1024,
            max_shared_memory_size: 64 << 10,
            max_cube_count: (i32::MAX as u32, 65_536, 65_536),
            max_cube_dim: (1024, 1024, 1024),
            num_streaming_multiprocessors: Some(processors),
            max_vector_size: usize::MAX,
            ..gpu(plane, plane)
        };
        Self {
            name,
            runtime: "hip",
            properties: Reported {
                floats: &[FloatKind::F16, FloatKind::BF16, FloatKind::F64],
                has_planes: true,
                wide_addresses: true,
                inter_cube_atomics: true,
                ..Reported::card(name, hardware)
            }
            .into(),
            targets: vec![Target::Hip { gfx }],
        }
    }

    /// An Apple M-series GPU under Metal.
    pub fn apple() -> Self {
        let hardware = HardwareProperties {
            max_bindings: 30,
            max_cube_count: (u32::MAX, u32::MAX, u32::MAX),
            max_cube_dim: (1024, 1024, 1024),
            ..gpu(32, 32)
        };
        Self {
            name: "Apple M",
            runtime: "wgpu<msl>",
            properties: Reported {
                floats: &[FloatKind::F16, FloatKind::BF16],
                has_planes: true,
                wide_addresses: true,
                ..Reported::card("Apple M", hardware)
            }
            .into(),
            targets: vec![Target::Msl],
        }
    }

    /// A browser with the limits that WebGPU guarantees; CubeCL reserves one binding.
    pub fn browser() -> Self {
        let hardware = HardwareProperties {
            max_bindings: 7,
            max_shared_memory_size: 16 << 10,
            max_units_per_cube: 256,
            max_cube_dim: (256, 256, 64),
            ..gpu(8, 128)
        };
        Self {
            name: "browser",
            runtime: "wgpu<wgsl>",
            properties: Reported {
                floats: &[FloatKind::F16],
                ..Reported::card("browser", hardware)
            }
            .into(),
            targets: vec![Target::Wgsl],
        }
    }

    /// A discrete GPU with planes of one size, through wgpu and WGSL.
    pub fn native_wgsl() -> Self {
        Self {
            name: "GPU, WGSL",
            runtime: "wgpu<wgsl>",
            properties: Reported {
                floats: &[FloatKind::F16, FloatKind::F64],
                has_planes: true,
                ..Reported::card("GPU", gpu(32, 32))
            }
            .into(),
            targets: vec![Target::Wgsl],
        }
    }

    /// Lavapipe through WGSL.
    pub fn software_wgsl() -> Self {
        Self {
            name: "lavapipe, WGSL",
            runtime: "wgpu<wgsl>",
            properties: lavapipe(),
            targets: vec![Target::Wgsl],
        }
    }

    /// Chromium's CPU Vulkan driver, SwiftShader, through WGSL: few bindings, small cubes.
    pub fn small_software_wgsl() -> Self {
        let hardware = HardwareProperties {
            max_bindings: 9,
            max_units_per_cube: 256,
            max_cube_dim: (256, 256, 64),
            ..gpu(4, 4)
        };
        Self {
            name: "SwiftShader, WGSL",
            runtime: "wgpu<wgsl>",
            properties: Reported::cpu_vulkan("SwiftShader", hardware).into(),
            targets: vec![Target::Wgsl],
        }
    }

    /// A GPU with Vulkan 1.3 and planes of one size.
    pub fn vulkan() -> Self {
        Self::vulkan_card("GPU, Vulkan 1.3", (1, 3), &[FloatKind::BF16], gpu(32, 32))
    }

    /// A GPU with Vulkan 1.2 whose driver chooses planes of 32 or 64 units.
    pub fn older_vulkan() -> Self {
        Self::vulkan_card("GPU, Vulkan 1.2", (1, 2), &[], gpu(32, 64))
    }

    /// A GPU that computes in f16 and f64; it only converts the dtypes in `converted`.
    fn vulkan_card(
        name: &'static str,
        vulkan: (u8, u8),
        converted: &'static [FloatKind],
        hardware: HardwareProperties,
    ) -> Self {
        Self {
            name,
            runtime: "wgpu<spirv>",
            properties: Reported {
                floats: &[FloatKind::F16, FloatKind::F64],
                converted,
                has_planes: true,
                ..Reported::card("GPU", hardware)
            }
            .into(),
            targets: vec![Target::Spirv {
                vulkan,
                explicit_shared_memory: true,
            }],
        }
    }

    /// Lavapipe through SPIR-V, without an explicit layout of shared memory.
    pub fn software_vulkan() -> Self {
        Self {
            name: "lavapipe, Vulkan 1.3",
            runtime: "wgpu<spirv>",
            properties: lavapipe(),
            targets: vec![Target::Spirv {
                vulkan: (1, 3),
                explicit_shared_memory: false,
            }],
        }
    }

    /// A CPU of eight cores with 256-bit vectors.
    pub fn cpu() -> Self {
        let cores = 8;
        let hardware = HardwareProperties {
            load_width: 256,
            vector_register_count: Some(16),
            max_bindings: u32::MAX,
            max_cube_count: (u32::MAX, u32::MAX, u32::MAX),
            max_units_per_cube: cores,
            max_cube_dim: (cores, cores, cores),
            num_cpu_cores: Some(cores),
            max_vector_size: usize::MAX,
            ..gpu(1, 1)
        };
        let mut properties: DeviceProperties = Reported {
            floats: &[FloatKind::F16, FloatKind::BF16, FloatKind::F64],
            wide_addresses: true,
            ..Reported::cpu_vulkan("CPU", hardware)
        }
        .into();
        properties.io_width_override = Some(512);
        Self {
            name: "CPU",
            runtime: "cpu",
            properties,
            targets: vec![Target::Llvm],
        }
    }
}

fn lavapipe() -> DeviceProperties {
    let hardware = HardwareProperties {
        max_bindings: 30,
        ..gpu(8, 8)
    };
    Reported {
        floats: &[FloatKind::F16, FloatKind::F64],
        ..Reported::cpu_vulkan("lavapipe", hardware)
    }
    .into()
}

/// The properties that wgpu reports for a GPU with this range of plane sizes.
fn gpu(plane_min: u32, plane_max: u32) -> HardwareProperties {
    HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: plane_min,
        plane_size_max: plane_max,
        max_bindings: 31,
        max_shared_memory_size: 32 << 10,
        max_cube_count: (65_535, 65_535, 65_535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 4,
        cube_mma_reserved_shared_memory: 0,
    }
}

/// Differences between devices.
struct Reported {
    name: &'static str,
    hardware: HardwareProperties,
    /// Float types in addition to f32.
    floats: &'static [FloatKind],
    /// Float types for loads, stores and conversions only.
    converted: &'static [FloatKind],
    /// True if plane operations are available.
    has_planes: bool,
    /// True if 64-bit addresses are available.
    wide_addresses: bool,
    /// True if cubes of a launch see each other's stores, including 8-byte atomics.
    inter_cube_atomics: bool,
    /// True for a physical GPU, false if a CPU executes the kernels.
    is_card: bool,
}

impl Reported {
    fn card(name: &'static str, hardware: HardwareProperties) -> Self {
        Self {
            name,
            hardware,
            floats: &[],
            converted: &[],
            has_planes: false,
            wide_addresses: false,
            inter_cube_atomics: false,
            is_card: true,
        }
    }

    fn cpu_vulkan(name: &'static str, hardware: HardwareProperties) -> Self {
        Self {
            is_card: false,
            ..Self::card(name, hardware)
        }
    }
}

impl From<Reported> for DeviceProperties {
    fn from(reported: Reported) -> Self {
        let memory = MemoryDeviceProperties::new(1 << 40, 256);
        let identity = DeviceIdentity {
            name: reported.name.to_owned(),
            fingerprint: reported.name.to_owned(),
            physical: reported.is_card.then(PhysicalDevice::default),
        };
        let timing = TimingMethod::System;
        let features = Default::default();
        let mut properties = Self::new(features, memory, reported.hardware, timing, identity);
        properties.register_address_type(AddressType::U32);
        if reported.wide_addresses {
            properties.register_address_type(AddressType::U64);
        }
        let everywhere = [
            ElemType::Float(FloatKind::F32),
            ElemType::Index,
            ElemType::Bool,
            ElemType::Int(IntKind::I32),
            ElemType::UInt(UIntKind::U32),
        ];
        let floats = reported.floats.iter().map(|&kind| ElemType::Float(kind));
        for elem in everywhere.into_iter().chain(floats) {
            properties.register_type_usage(elem, TypeUsage::all());
        }
        for &kind in reported.converted {
            let usage = TypeUsage::Conversion | TypeUsage::Buffer;
            properties.register_type_usage(ElemType::Float(kind), usage);
        }
        if reported.has_planes {
            properties.features.plane.insert(Plane::Ops);
        }
        if reported.inter_cube_atomics {
            properties.features.device_memory_scope = true;
            let word = Type::atomic(ElemType::UInt(UIntKind::U64));
            properties.register_atomic_type_usage(word, AtomicUsage::LoadStore);
            let numbers = ElemType::UInt(UIntKind::U64);
            properties.register_type_usage(numbers, TypeUsage::all());
        }
        properties
    }
}
