/// The few facts about a device that a plan may read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Cores that run units, on a CPU runtime; `None` on anything that schedules cubes itself.
    pub cpu_cores: Option<u32>,
    /// Whether the device is a GPU in software: cubes are scheduled, but by a few CPU cores, and
    /// what looks like parallel units are the lanes of a CPU's vectors.
    pub is_software: bool,
    /// Units of a plane, where it is the same for every kernel and plane operations are there.
    pub plane_size: Option<u32>,
    /// Units that a cube may have.
    pub max_units_per_cube: u32,
    /// Units that a cube may have along x, y and z.
    pub max_cube_dim: [u32; 3],
    /// Cubes that a launch may have along x.
    pub max_cubes: u32,
    /// Bytes of shared memory that a cube may use.
    pub max_shared_memory: usize,
    /// Buffers that a kernel may bind.
    pub max_bindings: u32,
    /// Streaming multiprocessors, where the runtime knows.
    pub multiprocessors: Option<u32>,
    /// Bits of the widest load.
    pub load_width: u32,
    /// Lanes that a vector may have, whatever its dtype.
    pub max_vector: usize,
}

impl Hardware {
    /// A CPU of so many cores whose widest load has `load_width` bits.
    pub const fn cpu(cores: u32, load_width: u32) -> Self {
        Self {
            cpu_cores: Some(cores),
            is_software: false,
            plane_size: None,
            max_units_per_cube: cores,
            max_cube_dim: [cores; 3],
            max_cubes: u32::MAX,
            max_shared_memory: 1 << 20,
            max_bindings: 32,
            multiprocessors: None,
            load_width,
            max_vector: 64,
        }
    }

    /// A device with what WebGPU guarantees and nothing more.
    pub const fn webgpu() -> Self {
        Self {
            cpu_cores: None,
            is_software: false,
            plane_size: None,
            max_units_per_cube: 256,
            max_cube_dim: [256, 256, 64],
            max_cubes: 65_535,
            max_shared_memory: 16 << 10,
            max_bindings: 8,
            multiprocessors: None,
            load_width: 128,
            max_vector: 4,
        }
    }

    /// A CUDA device of so many multiprocessors.
    pub const fn cuda(multiprocessors: u32) -> Self {
        Self {
            cpu_cores: None,
            is_software: false,
            plane_size: Some(32),
            max_units_per_cube: 1024,
            max_cube_dim: [1024, 1024, 64],
            max_cubes: i32::MAX as u32,
            max_shared_memory: 48 << 10,
            max_bindings: 32,
            multiprocessors: Some(multiprocessors),
            load_width: 128,
            max_vector: 16,
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
