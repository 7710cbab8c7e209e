//! The floor: a device copy of the bytes that the pass must move.
//!
//! A copy kernel of our own rather than CubeCL's throughput probe (`cubecl::std::throughput`), for
//! two reasons. The probe's kernel rotates a window over a pool, and pays for that arithmetic at
//! every element: on lavapipe it takes several times the time of the copy below. And this copy
//! rotates over the same number of buffers as the norms, so both find the caches in the same state
//! and pay for launches alike.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use cubecl::{client::Client, future::block_on, prelude::*, server::Handle};

use super::{
    Subject,
    norm::{TENSORS, memory, most_runs},
};
use crate::{check::Outcome, clock::Clock, problems::Problem};

/// Sets the copy up on the device that Burn's tensors are on.
pub(super) fn subject(problem: &Problem, device: &Device) -> Result<Box<dyn Subject>> {
    let elements = problem.bytes() / (2 * size_of::<f32>());
    let client = crate::tune::client(device)?;
    let most_runs = most_runs(device);
    Ok(Box::new(Copy::new(
        client,
        elements,
        memory(device),
        most_runs,
    )?))
}

/// Copies `per_unit` vectors in every unit. If `blocked`, a unit copies neighbours, as suits a
/// core of a CPU. Otherwise neighbouring units do.
#[cube(launch_unchecked)]
fn copy<N: Size>(
    input: &[Vector<f32, N>],
    output: &mut [Vector<f32, N>],
    per_unit: usize,
    #[comptime] blocked: bool,
) {
    let units = CUBE_DIM as usize;
    for i in 0..per_unit {
        let index = if blocked {
            ABSOLUTE_POS * per_unit + i
        } else {
            (CUBE_POS * per_unit + i) * units + UNIT_POS as usize
        };
        if index < output.len() {
            output[index] = input[index];
        }
    }
}

/// Arrangement of the vectors over units.
#[derive(Clone, Copy)]
struct Shape {
    units: usize,
    cubes: usize,
    per_unit: usize,
    blocked: bool,
}

struct Copy {
    client: Client,
    shape: Shape,
    elements: usize,
    /// Elements to copy, divided by the elements of a buffer.
    share: f64,
    width: usize,
    runs: usize,
    /// Input and output of each run of a sample.
    buffers: Vec<(Handle, Handle)>,
}

impl Copy {
    /// A sample's runs have `memory` bytes.
    fn new(client: Client, wanted: usize, memory: usize, most_runs: usize) -> Result<Self> {
        let largest = client.properties().memory.max_page_size as usize / size_of::<f32>();
        let elements = wanted.min(largest);
        let bytes = elements * size_of::<f32>();
        let runs = (memory / (2 * bytes)).clamp(1, most_runs);
        let data: Vec<f32> = (0..elements).map(|i| i as f32).collect();
        let buffers = (0..runs.min(TENSORS)).map(|_| {
            (
                client.create_from_slice(f32::as_bytes(&data)),
                client.empty(bytes),
            )
        });
        let width = client
            .io_optimized_vector_sizes(size_of::<f32>())
            .find(|width| elements.is_multiple_of(*width))
            .unwrap_or(1);
        let buffers = buffers.collect();
        let shapes = shapes(&client, elements / width);
        let mut copy = Self {
            client,
            shape: shapes[0],
            elements,
            share: wanted as f64 / elements as f64,
            width,
            runs,
            buffers,
        };
        copy.shape = copy.fastest(&shapes)?;
        copy.check(&data)?;
        Ok(copy)
    }

    fn fastest(&mut self, shapes: &[Shape]) -> Result<Shape> {
        let mut fastest = (Duration::MAX, self.shape);
        for &shape in shapes {
            self.shape = shape;
            let runs = self.buffers.len();
            // The first sample compiles.
            let times = [(); 3].map(|()| self.time(runs, &Clock::Host));
            let times = times.into_iter().collect::<Result<Vec<_>>>()?;
            let time = times.into_iter().min().unwrap_or(Duration::MAX);
            if time < fastest.0 {
                fastest = (time, shape);
            }
        }
        Ok(fastest.1)
    }

    fn check(&self, data: &[f32]) -> Result<()> {
        let output = self.buffers[0].1.clone();
        let output = self
            .client
            .read_one(output)
            .context("the copy could not be read")?;
        ensure!(
            f32::from_bytes(&output) == data,
            "wrong result: the copy differs"
        );
        Ok(())
    }

    fn launch(&self, run: usize) {
        let Shape {
            units,
            cubes,
            per_unit,
            blocked,
        } = self.shape;
        let (input, output) = self.buffers[run % self.buffers.len()].clone();
        let length = self.elements / self.width;
        // SAFETY: both buffers hold `length` vectors of `width` elements, and the kernel
        // compares every index with that length.
        unsafe {
            copy::launch_unchecked(
                &self.client,
                CubeCount::new_1d(cubes as u32),
                CubeDim::new_1d(units as u32),
                self.width,
                BufferArg::from_raw_parts(input, length),
                BufferArg::from_raw_parts(output, length),
                per_unit,
                blocked,
            );
        }
    }

    fn sync(&self) -> Result<()> {
        block_on(self.client.sync()).context("the device failed")
    }
}

impl Subject for Copy {
    fn most_runs(&self) -> usize {
        self.runs
    }

    fn time(&mut self, runs: usize, clock: &Clock) -> Result<Duration> {
        self.sync()?;
        let copies = || (0..runs).for_each(|run| self.launch(run));
        let (time, ()) = clock.time(copies, || self.sync())?;
        // Elements beyond one buffer take the same time each.
        Ok(time.mul_f64(self.share))
    }

    fn outcome(&mut self) -> Result<Option<Outcome>> {
        // Compared with its input in `new`.
        Ok(None)
    }
}

/// Candidates for the fastest arrangement. A CPU has a block for each core, or for fewer if
/// those fill the memory bus. A GPU has one or several vectors per unit, striped or blocked.
fn shapes(client: &Client, vectors: usize) -> Vec<Shape> {
    let hardware = &client.properties().hardware;
    match hardware.num_cpu_cores {
        Some(cores) => std::iter::successors(Some(cores as usize), |&units| {
            (units > 1).then_some(units / 2)
        })
        .map(|units| Shape {
            units,
            cubes: 1,
            per_unit: vectors.div_ceil(units),
            blocked: true,
        })
        .collect(),
        None => {
            let units = (hardware.max_units_per_cube as usize).min(256);
            let shape = |units: usize, per_unit: usize, blocked: bool| Shape {
                units,
                cubes: vectors.div_ceil(units * per_unit),
                per_unit,
                blocked,
            };
            let most = hardware.max_cube_count.0 as usize;
            // On a CPU Vulkan driver each of eight lanes copies a block.
            let blocks = [16, 256, 1024].map(|per_unit| shape(8, per_unit, true));
            [1, 2, 4, 8, 16, 32, 64]
                .map(|per_unit| shape(units, per_unit, false))
                .into_iter()
                .chain(blocks)
                .filter(|shape| shape.cubes <= most)
                .collect()
        }
    }
}
