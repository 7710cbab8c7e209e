//! The device properties that a plan depends on.

/// Minimum elements per CPU core before another core is woken.
/// 2^16 elements and fewer, forward, two cores -> one: 1.43x to 2.5x faster; 2^19: 1.2x slower.
const ELEMENTS_OF_CORE: usize = 1 << 17;

/// The device properties that a plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Cores that run units on a CPU runtime; `None` on devices that schedule cubes themselves.
    pub cpu_cores: Option<u32>,
    /// Cores that execute the cubes of a CPU Vulkan driver such as lavapipe; `None` on other
    /// devices. The units of a cube are SIMD lanes of these cores.
    pub cpu_vulkan_cores: Option<u32>,
    /// Units of a plane; `None` if the size varies between kernels or plane operations are missing.
    pub plane_size: Option<u32>,
    /// Units that a cube may have.
    pub max_units_per_cube: u32,
    /// Units that a cube may have along x, y and z.
    pub max_cube_dim: [u32; 3],
    /// Cubes that a launch may have along x.
    pub max_cubes: u32,
    /// Bytes of shared memory that a cube may use; on a CPU, bytes of a core's first-level cache.
    pub max_shared_memory: usize,
    /// True if units of a cube can share memory.
    pub shares_memory: bool,
    /// True if arrays in shared memory reuse the space of others with disjoint lifetimes. WGSL
    /// gives each array its own space.
    pub reuses_shared_memory: bool,
    /// Buffers that a kernel may bind.
    pub max_bindings: u32,
    /// Streaming multiprocessors; `None` if the runtime does not report them.
    pub multiprocessors: Option<u32>,
    /// True if the cubes of a launch can exchange 8-byte values through atomics while they run.
    pub inter_cube_atomics: bool,
    /// Bits of the widest load.
    pub load_width: u32,
    /// Most lanes of a vector, for any dtype. A CPU Vulkan driver allows more for vectors of
    /// adjacent rows.
    pub max_vector: usize,
    /// Bits of all vector registers of a CPU core; 0 on other devices.
    pub register_bits: u32,
    /// Bytes of the CPU caches, the reference for non-temporal stores and prefetch. `None` if
    /// neither is available or the size is unknown.
    pub nontemporal_threshold: Option<usize>,
}

impl Hardware {
    /// Lanes of a vector on a CPU Vulkan driver: the 16-bit elements of one load. CubeCL splits
    /// vectors that are too wide for the shader language.
    pub const CPU_VULKAN_VECTOR: usize = 8;

    /// A CPU with this number of cores; `load_width` is in bits.
    pub const fn cpu(cores: u32, load_width: u32) -> Self {
        Self {
            cpu_cores: Some(cores),
            cpu_vulkan_cores: None,
            plane_size: None,
            max_units_per_cube: cores,
            max_cube_dim: [cores; 3],
            max_cubes: u32::MAX,
            max_shared_memory: 32 << 10,
            shares_memory: true,
            reuses_shared_memory: true,
            max_bindings: 32,
            multiprocessors: None,
            inter_cube_atomics: false,
            load_width,
            max_vector: 64,
            register_bits: 32 * load_width,
            nontemporal_threshold: None,
        }
    }

    /// A device with the limits that WebGPU guarantees.
    pub const fn webgpu() -> Self {
        Self {
            cpu_cores: None,
            cpu_vulkan_cores: None,
            plane_size: None,
            max_units_per_cube: 256,
            max_cube_dim: [256, 256, 64],
            max_cubes: 65_535,
            max_shared_memory: 16 << 10,
            shares_memory: true,
            reuses_shared_memory: false,
            max_bindings: 8,
            multiprocessors: None,
            inter_cube_atomics: false,
            load_width: 128,
            max_vector: 4,
            register_bits: 0,
            nontemporal_threshold: None,
        }
    }

    /// The WebGPU limits on a CPU Vulkan driver with this number of cores.
    pub const fn cpu_vulkan(cores: u32) -> Self {
        Self {
            cpu_vulkan_cores: Some(cores),
            max_vector: Self::CPU_VULKAN_VECTOR,
            ..Self::webgpu()
        }
    }

    /// A CUDA device with this number of multiprocessors.
    pub const fn cuda(multiprocessors: u32) -> Self {
        Self {
            cpu_cores: None,
            cpu_vulkan_cores: None,
            plane_size: Some(32),
            max_units_per_cube: 1024,
            max_cube_dim: [1024, 1024, 64],
            max_cubes: i32::MAX as u32,
            max_shared_memory: 48 << 10,
            shares_memory: true,
            reuses_shared_memory: true,
            max_bindings: 32,
            multiprocessors: Some(multiprocessors),
            inter_cube_atomics: true,
            load_width: 128,
            max_vector: 16,
            register_bits: 0,
            nontemporal_threshold: None,
        }
    }

    /// CPU cores worth waking to read `elements` elements; `None` if no CPU runs units. A launch
    /// waits for every core that it wakes, and they compete with the threads that prepare the next
    /// launch.
    pub fn busy_cores(&self, elements: usize) -> Option<u32> {
        let wanted = elements / ELEMENTS_OF_CORE;
        self.cpu_cores
            .map(|cores| wanted.clamp(1, cores as usize) as u32)
    }

    /// True if a CPU executes the cubes of a Vulkan device, as lavapipe does.
    pub const fn is_cpu_vulkan(&self) -> bool {
        self.cpu_vulkan_cores.is_some()
    }

    /// True for real GPUs: neither a CPU runtime nor a CPU Vulkan driver.
    pub const fn is_gpu(&self) -> bool {
        self.cpu_cores.is_none() && !self.is_cpu_vulkan()
    }

    /// Units per plane that a plan may use; `wanted` replaces the device's number.
    ///
    /// `None` on a CPU, whose compiler has no plane operations. Ignores a size that fits no cube or
    /// is no power of two.
    pub(super) fn plane(&self, wanted: Option<u32>) -> Option<u32> {
        let most = self.max_units_per_cube.min(self.max_cube_dim[0]);
        let fits = |size: &u32| size.is_power_of_two() && (2..=most).contains(size);
        let size = [wanted, self.plane_size].into_iter().flatten().find(fits);
        size.filter(|_| self.cpu_cores.is_none())
    }

    /// Number of multiprocessors; a mid-range GPU's if the runtime does not report it.
    pub const fn processors(&self) -> usize {
        match self.multiprocessors {
            Some(processors) => processors as usize,
            None => 32,
        }
    }

    /// Bits of all vector registers of a core of the current processor: 32 of 512 with AVX-512, 16
    /// of 256 with AVX, 32 of 128 on Arm.
    pub fn register_bits_here() -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            match (
                std::arch::is_x86_feature_detected!("avx512f"),
                std::arch::is_x86_feature_detected!("avx"),
            ) {
                (true, _) => 32 * 512,
                (false, true) => 16 * 256,
                (false, false) => 16 * 128,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            32 * 128
        }
    }

    /// Buffers that a kernel of this process may bind, from the number that CubeCL reports.
    ///
    /// CubeCL leaves one storage buffer to wgpu's Metal backend. A browser does without that backend: there
    /// all that WebGPU guarantees are free.
    pub const fn max_bindings_here(reported: u32) -> u32 {
        match cfg!(target_family = "wasm") {
            true => reported.saturating_add(1),
            false => reported,
        }
    }

    /// Lanes of the widest load of elements of `element` bytes.
    pub fn widest_vector(&self, element: usize) -> usize {
        let lanes = (self.load_width as usize / (8 * element)).max(1);
        let widest = lanes.min(self.max_vector.max(1));
        // Repeated halving must reach 1.
        1 << widest.ilog2()
    }
}
