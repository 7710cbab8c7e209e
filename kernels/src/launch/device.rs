//! Device properties, and checks of a call against them.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use cubecl::ir::{
    ElemType, FloatKind, Type, UIntKind,
    features::{AtomicUsage, Plane, TypeUsage},
};
use cubecl::prelude::*;
use cubenorm_core::{Activation, ActivationKind, DType, Hardware};

use super::LaunchError;
use super::plan_cache::{Device, PlanCache, device};

/// Hardware properties that a plan depends on, from a client.
///
/// Shared memory is unavailable on CPU Vulkan drivers (lavapipe, SwiftShader) with SPIR-V. They
/// lack `VK_KHR_workgroup_memory_explicit_layout`. CubeCL 0.11.3 then declares shared memory as a
/// pointer to a pointer (`cubecl-spirv`, `ops/memory.rs`, `lower_shared_implicit`). Lavapipe
/// crashes on that, and SwiftShader computes wrong numbers.
pub fn hardware(client: &Client) -> Hardware {
    static HARDWARE: PlanCache<Device, Hardware> = PlanCache::new();
    let read = || Ok::<_, Infallible>(read_hardware(client));
    let Ok(hardware) = HARDWARE.get(&device(client), |_| true, read);
    (*hardware).clone()
}

fn read_hardware(client: &Client) -> Hardware {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let has_planes = client.features().plane.contains(Plane::Ops);
    let plane_size = hardware.plane_size_min;
    let is_cpu_vulkan =
        hardware.num_cpu_cores.is_none() && properties.identity.physical.is_none() && !has_planes;
    let is_fixed = plane_size == hardware.plane_size_max && plane_size > 1;
    Hardware {
        cpu_cores: hardware.num_cpu_cores,
        cpu_vulkan_cores: is_cpu_vulkan.then(|| *CORES_HERE),
        plane_size: (has_planes && is_fixed).then_some(plane_size),
        max_units_per_cube: hardware.max_units_per_cube,
        max_cube_dim: hardware.max_cube_dim.into(),
        max_cubes: hardware.max_cube_count.0,
        max_shared_memory: hardware.max_shared_memory_size,
        shares_memory: !(is_cpu_vulkan && client.name() == "wgpu<spirv>"),
        reuses_shared_memory: client.name() != "wgpu<wgsl>",
        max_bindings: Hardware::max_bindings_here(hardware.max_bindings),
        multiprocessors: hardware.num_streaming_multiprocessors,
        inter_cube_atomics: inter_cube_atomics(client),
        load_width: properties.io_width(),
        max_vector: match is_cpu_vulkan {
            true => Hardware::CPU_VULKAN_VECTOR,
            false => hardware.max_vector_size,
        },
        register_bits: Hardware::register_bits_here(),
        nontemporal_threshold: hardware
            .last_level_cache_size
            .filter(|_| has_cpu_hints(client)),
    }
}

/// True if the device's compiler supports non-temporal stores and prefetches: see
/// [`cubenorm_cpu_hints`].
pub(crate) fn has_cpu_hints(client: &Client) -> bool {
    cubenorm_cpu_hints::is_known() && client.properties().hardware.num_cpu_cores.is_some()
}

/// True if cubes of a launch can exchange 64-bit words by atomic loads and stores.
///
/// CubeCL reports support on two runtimes that are excluded here. Metal has no 64-bit atomic load
/// or store. On ROCm the dies of a device have separate caches, and this has not been tested.
fn inter_cube_atomics(client: &Client) -> bool {
    let word = Type::atomic(ElemType::UInt(UIntKind::U64));
    let usage = client.properties().atomic_type_usage(word);
    let is_left_out = ["metal", "wgpu<msl>", "hip"].contains(&client.name());
    client.features().device_memory_scope && usage.contains(AtomicUsage::LoadStore) && !is_left_out
}

/// Cores of a CPU if the system does not report them: a mid-range machine's.
const CORES: u32 = 8;

/// Cores of the host CPU, which also runs a CPU Vulkan driver. Cached, since the system reads them
/// from files.
static CORES_HERE: LazyLock<u32> =
    LazyLock::new(|| available_parallelism().map_or(CORES, |cores| cores.get() as u32));

pub(crate) fn elem_type(dtype: DType) -> ElemType {
    ElemType::Float(match dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        DType::F32 => FloatKind::F32,
        DType::F64 => FloatKind::F64,
    })
}

/// True if the device can load, store and convert a dtype, and compute in it if it is an
/// accumulation type.
pub fn supports(client: &Client, dtype: DType) -> bool {
    let usage = client.properties().type_usage(elem_type(dtype));
    let needed = match dtype.accumulation() == dtype {
        true => TypeUsage::Buffer | TypeUsage::Conversion | TypeUsage::Arithmetic,
        false => TypeUsage::Buffer | TypeUsage::Conversion,
    };
    let is_cpu = client.properties().hardware.num_cpu_cores.is_some();
    usage.is_superset(needed) && (!is_cpu || dtype.is_rounded_by_processor())
}

/// True if the device computes an activation to the precision of a dtype.
///
/// CubeCL's error function and constants in kernels have f32 precision. WGSL and SPIR-V have no f64
/// transcendental functions. Such activations are refused in f64 instead of losing precision.
pub fn supports_activation(client: &Client, dtype: DType, activation: Activation) -> bool {
    let kind = activation.kind();
    let is_cpu = client.properties().hardware.num_cpu_cores.is_some();
    dtype != DType::F64
        || !kind.is_transcendental()
        || is_cpu && !matches!(kind, ActivationKind::Gelu | ActivationKind::GeluTanh)
}

/// Checks that a device supports an activation.
pub(crate) fn check_activation(
    client: &Client,
    dtype: DType,
    activation: Activation,
) -> Result<(), LaunchError> {
    match supports_activation(client, dtype, activation) {
        true => Ok(()),
        false => Err(LaunchError::Activation {
            runtime: client.name(),
            activation,
            dtype,
        }),
    }
}

/// Checks that a device supports all dtypes.
pub(crate) fn check_dtypes(
    client: &Client,
    mut dtypes: impl Iterator<Item = DType>,
) -> Result<(), LaunchError> {
    match dtypes.find(|&dtype| !supports(client, dtype)) {
        None => Ok(()),
        Some(dtype) => {
            let available: Vec<_> = DType::ALL
                .into_iter()
                .filter(|&dtype| supports(client, dtype))
                .map(|dtype| dtype.to_string())
                .collect();
            Err(LaunchError::DType {
                runtime: client.name(),
                dtype,
                available: available.join(", "),
                elsewhere: match dtype {
                    DType::BF16 => "cuda, rocm, metal, or cpu if the processor converts to it",
                    DType::F64 => "cuda, rocm or cpu",
                    DType::F16 | DType::F32 => "cuda, rocm, metal, vulkan or cpu",
                },
            })
        }
    }
}
