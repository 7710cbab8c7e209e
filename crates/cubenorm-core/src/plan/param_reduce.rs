//! The final reduction of partial sums to dgamma and dbeta, and its units per cube.

use super::footprint::{Buffer, Extent, Footprint, Kernel, reach};
use super::hardware::Hardware;
use super::limits::check_limits;
use super::result::PlanError;
use super::shared_memory::SharedMemory;
use crate::dtype::DType;
use crate::layout::TensorDesc;
use crate::problem::Access;

/// Units of a cube that reduces partial sums, one parameter element each.
const REDUCE_UNITS: u32 = 64;

/// Minimum parts that several GPU units share. A single unit would wait for memory once per part.
const SHARED_PARTS: usize = 64;

/// Most units of a cube that shares parts, and minimum parts per unit.
const SHARING_UNITS: u32 = 1024;
const PARTS_OF_UNIT: usize = 16;

/// Adjacent elements of such a cube: at most a cache line if all multiprocessors are busy, at least
/// one memory access.
const MOST_COLUMNS: u32 = 32;
const LEAST_COLUMNS: u32 = 8;

/// Partial sums of parameter gradients that a launch writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Partials {
    /// The buffer that holds them.
    pub buffer: Buffer,
    /// Elements of that buffer.
    pub elements: usize,
    /// Addresses of the partial sums: the row is the parameter element, the columns are its parts.
    pub access: Access,
    /// Parts of each element.
    pub parts: usize,
    /// Offsets of the sums of scale and bias.
    pub offsets: [usize; 2],
}

/// The reduction of partial sums to the gradients of scale and bias, of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamReduce {
    /// The partial sums.
    pub partials: Partials,
    /// True for scale and bias if their gradient is written.
    pub writes: [bool; 2],
    /// Elements of each gradient.
    pub elements: usize,
    /// Dtype of each gradient.
    pub dtype: DType,
    /// Adjacent elements that a unit reduces together.
    pub vector: usize,
    /// Units of a cube: adjacent vectors along x, units that share a vector's parts along y.
    pub cube_dim: [u32; 3],
    /// Cubes along x, and one along y for each gradient.
    pub cube_count: [u32; 3],
    /// Vectors that a unit reduces one after another.
    pub rounds: usize,
}

impl ParamReduce {
    /// Vectors of each gradient.
    pub fn vectors(&self) -> usize {
        self.elements / self.vector
    }

    pub(super) fn footprint(&self, accumulation: usize) -> Footprint {
        let Partials {
            buffer,
            access,
            offsets,
            ..
        } = &self.partials;
        let [of_scale, of_bias] = self.writes;
        let first = |is_read: bool, offset: usize| if is_read { offset } else { 0 };
        let offset = first(of_scale, offsets[0]).max(first(of_bias, offsets[1]));
        let written = |buffer: Buffer, wanted: bool| {
            wanted.then_some(Extent {
                buffer,
                read: 0,
                written: self.elements,
            })
        };
        let extents = [
            Some(Extent {
                buffer: *buffer,
                read: offset + reach(access),
                written: 0,
            }),
            written(Buffer::ScaleGradient, of_scale),
            written(Buffer::BiasGradient, of_bias),
        ];
        let units = self.cube_dim.iter().product::<u32>() as usize;
        Footprint {
            kernel: Kernel::ParamReduce,
            cube_dim: self.cube_dim,
            cube_count: self.cube_count,
            shared_memory: match self.cube_dim[1] {
                1 => SharedMemory::default(),
                _ => SharedMemory::of(units * self.vector * accumulation),
            },
            bindings: 2 + self.cube_count[1],
            extents: extents.into_iter().flatten().collect(),
        }
    }
}

impl ParamReduce {
    /// Plans the reduction to the gradients of `params`, of one shape; `None` if there are none or
    /// they are empty.
    pub(super) fn plan(
        partials: Partials,
        params: [Option<&TensorDesc>; 2],
        accumulation: DType,
        hardware: &Hardware,
    ) -> Result<Option<Self>, PlanError> {
        let Some(param) = params.iter().flatten().next() else {
            return Ok(None);
        };
        let elements = param.shape().iter().product::<usize>();
        if elements == 0 {
            return Ok(None);
        }
        let outputs = params.iter().flatten().count();
        let bytes = accumulation.size().max(param.dtype.size());
        let vector = vector(&partials, bytes, hardware);
        let vectors = elements / vector;
        let (columns, members) = units(partials.parts, elements, outputs, hardware);
        let cubes = match hardware.cpu_cores {
            Some(_) => 1,
            None => {
                let wanted = vectors.div_ceil(columns as usize);
                wanted.min(hardware.max_cubes as usize)
            }
        };
        let reduce = Self {
            partials,
            writes: params.map(|param| param.is_some()),
            elements,
            dtype: param.dtype,
            vector,
            cube_dim: [columns, members, 1],
            cube_count: [cubes as u32, outputs as u32, 1],
            rounds: vectors.div_ceil(cubes * columns as usize),
        };
        check_limits(&[reduce.footprint(accumulation.size())], hardware)?;
        Ok(Some(reduce))
    }
}

/// Units of a reducing cube: adjacent vectors, and units that share a vector's parts if the device
/// runs them in parallel.
fn units(parts: usize, elements: usize, outputs: usize, hardware: &Hardware) -> (u32, u32) {
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
    if let Some(cores) = hardware.busy_cores(parts.saturating_mul(elements)) {
        return (cores, 1);
    }
    if !hardware.is_gpu() || parts < SHARED_PARTS {
        return (REDUCE_UNITS.min(most), 1);
    }
    let processors = hardware.processors().max(1);
    let wanted = (outputs * elements / processors).max(1).ilog2();
    let columns = 1 << wanted.min(MOST_COLUMNS.ilog2());
    let columns = u32::clamp(columns, LEAST_COLUMNS, MOST_COLUMNS).min(most);
    let shares = (parts / PARTS_OF_UNIT).clamp(1, SHARING_UNITS as usize) as u32;
    let room = SHARING_UNITS.min(most) / columns;
    let members = shares.min(room).min(hardware.max_cube_dim[1]).max(1);
    (columns, 1 << members.ilog2())
}

/// Adjacent elements of `bytes` bytes that a unit reduces together. One on a GPU, to occupy more
/// units.
fn vector(partials: &Partials, bytes: usize, hardware: &Hardware) -> usize {
    let Some((last, outer)) = partials.access.row.split_last() else {
        return 1;
    };
    if hardware.is_gpu() || last.stride != 1 {
        return 1;
    }
    let steps = outer.iter().chain(&partials.access.col);
    let jumps = steps.map(|dim| dim.stride).chain(partials.offsets);
    let jumps: Vec<usize> = jumps.chain([last.size]).collect();
    let mut vector = hardware.widest_vector(bytes);
    // A vector access must be aligned to its width.
    while jumps.iter().any(|n| n % vector != 0) {
        vector /= 2;
    }
    vector
}
