use crate::DType;

/// Units that a core runs in one instruction where a driver plays a GPU on a CPU.
pub(super) const LANES: u32 = 8;

/// Elements that a core of a CPU should have to read before another is woken. Measured on two cores, forward: up to
/// 2^16 elements one core takes 0.4 to 0.7 of the time of both, 2^17 0.75 to 0.9, 2^18 0.75 to 1.1, 2^19 1.2.
const ELEMENTS_OF_CORE: usize = 1 << 17;

/// Elements that a row takes as long as at least: it has a root and two divisions, however short it is. Measured with
/// AVX2: rows of three halves take a core 8.5 ns each, rows of 768 of them 0.34 ns for each element.
const LEAST_OF_ROW: usize = 32;

/// Vectors of rows that lie side by side that a core's registers have room for: four registers for each where there are 32
/// of them. Measured with AVX-512 in one run, beside one register of memory: batch norm with channels last takes 0.31 to 0.82
/// of the time, of halves, in two registers of memory, 0.55 to 0.89; instance norm 0.77 to 0.95 and 0.68 to 0.86.
const VECTORS_OF_ROWS: usize = 8;

/// Rows that lie side by side that a unit of a software driver takes at most: as floats a line of a cache. Measured on
/// Mesa's driver with AVX-512, channels last, beside vectors of four floats and eight halves: instance norm in 128 channels takes 0.18
/// and 0.37 of the time forward and 0.21 and 0.52 in both passes, group norm in 320 0.47 and 0.37, batch norm of floats in 64, eight of them in a vector, 0.32 in both passes,
/// layer norm over channels of 28 x 28 and 56 x 56 0.35 to 0.58. In 32 channels, which eight vectors of four fill, eight
/// and sixteen take 1.1 and 1.2 times the time in both passes; 32 lanes take up to 1.4 times the time of 16.
const SOFTWARE_ROWS: usize = 16;

/// The few facts about a device that a plan may read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Cores that run units, on a CPU runtime; `None` on anything that schedules cubes itself.
    pub cpu_cores: Option<u32>,
    /// Cores of the CPU that plays a GPU, where a driver does that; `None` on anything else. Cubes are
    /// scheduled, but by those cores, and what looks like parallel units are the lanes of their vectors.
    pub software_cores: Option<u32>,
    /// Units of a plane, where it is the same for every kernel and plane operations are there.
    pub plane_size: Option<u32>,
    /// Units that a cube may have.
    pub max_units_per_cube: u32,
    /// Units that a cube may have along x, y and z.
    pub max_cube_dim: [u32; 3],
    /// Cubes that a launch may have along x.
    pub max_cubes: u32,
    /// Bytes of shared memory that a cube may use; of a CPU, of a core's first-level cache.
    pub max_shared_memory: usize,
    /// Whether units of a cube can share it.
    pub shares_memory: bool,
    /// True if tables in shared memory that are not live at the same time take one place. WGSL gives each its own.
    pub reuses_shared_memory: bool,
    /// Buffers that a kernel may bind.
    pub max_bindings: u32,
    /// Streaming multiprocessors, where the runtime knows.
    pub multiprocessors: Option<u32>,
    /// Whether cubes of a launch can tell each other numbers of 8 bytes while they run.
    pub cubes_talk: bool,
    /// Bits of the widest load.
    pub load_width: u32,
    /// Lanes that a vector may have, whatever its dtype; a software driver's has more where they are rows that lie side by side.
    pub max_vector: usize,
    /// Bits of all vector registers of a core, where a CPU runs units.
    pub register_bits: u32,
    /// Bytes of the caches that results can be stored past and rows fetched into; `None` where neither can be asked for, or
    /// nobody says how large they are.
    pub passable_caches: Option<usize>,
}

impl Hardware {
    /// Lanes of a vector where a driver plays a GPU on a CPU: halves that one load brings. CubeCL cuts vectors that are
    /// wider than those of its language.
    pub const SOFTWARE_VECTOR: usize = 8;

    /// A CPU of so many cores whose widest load has `load_width` bits.
    pub const fn cpu(cores: u32, load_width: u32) -> Self {
        Self {
            cpu_cores: Some(cores),
            software_cores: None,
            plane_size: None,
            max_units_per_cube: cores,
            max_cube_dim: [cores; 3],
            max_cubes: u32::MAX,
            max_shared_memory: 32 << 10,
            shares_memory: true,
            reuses_shared_memory: true,
            max_bindings: 32,
            multiprocessors: None,
            cubes_talk: false,
            load_width,
            max_vector: 64,
            register_bits: 32 * load_width,
            passable_caches: None,
        }
    }

    /// A device with what WebGPU guarantees and nothing more.
    pub const fn webgpu() -> Self {
        Self {
            cpu_cores: None,
            software_cores: None,
            plane_size: None,
            max_units_per_cube: 256,
            max_cube_dim: [256, 256, 64],
            max_cubes: 65_535,
            max_shared_memory: 16 << 10,
            shares_memory: true,
            reuses_shared_memory: false,
            max_bindings: 8,
            multiprocessors: None,
            cubes_talk: false,
            load_width: 128,
            max_vector: 4,
            register_bits: 0,
            passable_caches: None,
        }
    }

    /// The same played by a driver on a CPU of so many cores.
    pub const fn software(cores: u32) -> Self {
        Self {
            software_cores: Some(cores),
            max_vector: Self::SOFTWARE_VECTOR,
            ..Self::webgpu()
        }
    }

    /// A CUDA device of so many multiprocessors.
    pub const fn cuda(multiprocessors: u32) -> Self {
        Self {
            cpu_cores: None,
            software_cores: None,
            plane_size: Some(32),
            max_units_per_cube: 1024,
            max_cube_dim: [1024, 1024, 64],
            max_cubes: i32::MAX as u32,
            max_shared_memory: 48 << 10,
            shares_memory: true,
            reuses_shared_memory: true,
            max_bindings: 32,
            multiprocessors: Some(multiprocessors),
            cubes_talk: true,
            load_width: 128,
            max_vector: 16,
            register_bits: 0,
            passable_caches: None,
        }
    }

    /// [`Self::busy_cores`] of so many rows of so many elements each.
    pub(super) fn busy_cores_of_rows(&self, rows: usize, elements: usize) -> Option<u32> {
        self.busy_cores(rows.saturating_mul(elements.max(LEAST_OF_ROW)))
    }

    /// Cores that are worth waking to read so many elements, where a CPU runs units: a launch waits for each of
    /// them, and the threads that prepare the next one have no other place to run.
    pub fn busy_cores(&self, elements: usize) -> Option<u32> {
        let wanted = elements / ELEMENTS_OF_CORE;
        self.cpu_cores
            .map(|cores| wanted.clamp(1, cores as usize) as u32)
    }

    /// Whether a driver plays the device on a CPU.
    pub const fn is_software(&self) -> bool {
        self.software_cores.is_some()
    }

    /// Whether it is what no CPU plays.
    pub const fn is_gpu(&self) -> bool {
        self.cpu_cores.is_none() && !self.is_software()
    }

    /// Its multiprocessors; those of a mid-range GPU where the runtime does not say.
    pub const fn processors(&self) -> usize {
        match self.multiprocessors {
            Some(processors) => processors as usize,
            None => 32,
        }
    }

    /// Units that all cores run at once where a driver plays the device on a CPU.
    pub(super) fn software_lanes(&self) -> Option<usize> {
        self.software_cores.map(|cores| (cores * LANES) as usize)
    }

    /// Bits of all vector registers of a core of the processor that this runs on: 32 of 512 with AVX-512, 16
    /// of 256 with AVX2, 32 of 128 on ARM.
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

    /// Rows that a core has registers for when each of them has so many vectors of so many bytes at a time.
    pub(super) fn rows_in_registers(&self, vectors: usize, bytes: usize) -> usize {
        (self.register_bits as usize / (8 * vectors * bytes)).max(1)
    }

    /// Lanes of the widest vector of rows that lie side by side. A core of a CPU goes from line to line of memory there,
    /// and had better find several that are neighbours. So does one that plays a GPU, where the vectors of neighbouring units do
    /// not fill the `run` of rows that lie side by side.
    pub(super) fn widest_of_rows(&self, dtype: DType, run: usize) -> usize {
        let of_load = self.widest_vector(dtype.size());
        let bits = self.register_bits as usize / VECTORS_OF_ROWS;
        let of_registers = (bits / (8 * dtype.accumulation().size())).max(1);
        match self.cpu_cores {
            Some(_) => of_load.max((1 << of_registers.ilog2()).min(self.max_vector)),
            None if self.is_software() => {
                let of_unit = (run / LANES as usize).clamp(1, SOFTWARE_ROWS);
                of_load.max(1 << of_unit.ilog2())
            }
            None => of_load,
        }
    }

    /// Lanes of the widest load of elements of so many bytes.
    pub fn widest_vector(&self, element: usize) -> usize {
        let lanes = (self.load_width as usize / (8 * element)).max(1);
        let widest = lanes.min(self.max_vector.max(1));
        // Halving must reach 1.
        1 << widest.ilog2()
    }
}
