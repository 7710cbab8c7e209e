//! Several teams per row, in two launches.

use super::cube::{CUBE_VECTORS, cube};
use super::device::{CPU_VULKAN_STEPS, CUBES_PER_SOFTWARE_CORE, cubes_to_fill};
use super::parts::{MAX_SPLITS, even_parts, parts};
use super::perpendicular::perpendicular;
use super::unit::unit;
use super::{Shape, Work};
use crate::plan::hardware::LANES;
use crate::plan::{Hardware, Knobs, Staging, Vectorization};

/// Cubes per multiprocessor if nothing is reduced, enough to keep the last wave short.
/// 2,048 channels of 7 x 7 H200, provided statistics, one cube per row -> 16: 1.09x to 1.15x
/// faster.
pub(super) const CUBES_WITHOUT_SUMS: usize = 64;
/// Minimum steps per cube if nothing is reduced.
pub(super) const STEPS_WITHOUT_SUMS: usize = 1024;

/// CPU Vulkan: minimum steps per lane.
/// One row lavapipe, forward and backward, two and four -> eight parts: 1.0x to 1.25x faster.
const STEPS_OF_LANE: usize = 32;

/// Schedules several teams per row. A forced split takes at least two parts if there are two steps.
pub(super) fn split(
    work: &Work,
    hardware: &Hardware,
    plane: Option<u32>,
    is_forced: bool,
) -> Shape {
    let at_least = if is_forced { 2 } else { 1 };
    let limit = |splits: usize| {
        let splits = work
            .knobs
            .splits
            .unwrap_or(splits)
            .min(MAX_SPLITS.max(splits));
        splits.max(at_least).min(work.steps).max(1)
    };
    let of_units = |splits: usize| {
        let cores = work.busy_cores(hardware);
        let parts = Work {
            groups: work.groups * splits,
            rows_per_unit: 1,
            // Parts have no more elements than the rows, so they are worth no more cores.
            knobs: Knobs {
                units: work.knobs.units.or(cores),
                ..work.knobs
            },
            ..*work
        };
        Shape {
            splits,
            ..unit(&parts, hardware)
        }
    };
    // A team with one part of a row stages no column sums.
    let without_sums = Work {
        column_sums: 0,
        ..*work
    };
    let mut shape = match (
        work.lanes,
        work.busy_cores(hardware),
        hardware.cpu_vulkan_cores,
    ) {
        (_, Some(cores), _) => {
            let even = work.even_among(cores);
            of_units(limit(even.max(work.steps.div_ceil(work.longest_sum()))))
        }
        (_, None, Some(cores)) => {
            let cubes = cores as usize * CUBES_PER_SOFTWARE_CORE;
            let wanted = cubes.div_ceil(work.groups.max(1));
            let exact_vectors = wanted.min(work.steps.div_ceil(CUBE_VECTORS * 64));
            let lanes = (LANES as usize / work.groups.max(1)).min(work.steps / STEPS_OF_LANE);
            let least = work.steps.div_ceil(CPU_VULKAN_STEPS);
            of_units(limit(exact_vectors.max(lanes).max(least)))
        }
        (Vectorization::Perpendicular, None, None) => {
            let shape = perpendicular(&without_sums, hardware, is_forced);
            Shape {
                splits: limit(shape.splits),
                ..shape
            }
        }
        (Vectorization::Parallel, None, None) => {
            let least = CUBE_VECTORS * 64;
            let most = work.steps.div_ceil(least);
            let wanted = match work.reduces {
                true => even_parts(hardware, work, most),
                false => {
                    let cubes = cubes_to_fill(hardware, CUBES_WITHOUT_SUMS);
                    parts(cubes, work.groups, work, STEPS_WITHOUT_SUMS)
                }
            };
            let splits = limit(wanted);
            Shape {
                splits,
                ..cube(&without_sums, hardware, work.steps.div_ceil(splits), plane)
            }
        }
    };
    // Nothing is staged between two launches.
    shape.staging = Staging::Reload;
    shape.room = 1;
    shape
}
