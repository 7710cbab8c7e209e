//! The kernels that the cases of the catalogue launch on a device.

use std::collections::HashSet;

use cubecl::prelude::*;
use cubenorm_core::{DType, Knobs, Strategy, StrategyChoice};
use cubenorm_kernels::LaunchError;

use crate::{Case, Kernel, Profile, Recorder};

/// A kernel and its first launch.
#[derive(Clone)]
pub struct Found {
    /// The kernel.
    pub kernel: Kernel,
    /// The name of its `#[cube]` function.
    pub name: &'static str,
    /// The strategy of the plan; `None` without a plan.
    pub strategy: Option<Strategy>,
    /// The dtype of the input.
    pub dtype: DType,
    /// The case that launches it.
    pub case: String,
    /// The knobs of its plan.
    pub knobs: Knobs,
    /// True if the benchmark measures it: a forward kernel of an analytic plan for one of its
    /// shapes.
    pub is_hot: bool,
}

/// All distinct kernels that the cases launch on a device.
///
/// # Errors
///
/// If a case is invalid. Cases that the device does not support or has no plan for are skipped.
pub fn survey(profile: &Profile, cases: &[Case]) -> Result<Vec<Found>, LaunchError> {
    let recorder = Recorder::of(profile);
    let client = recorder.client();
    let mut seen = HashSet::new();
    let mut found: Vec<Found> = Vec::new();
    for case in cases {
        for choice in case.choices(client) {
            let strategy = case.work.strategy(client, choice);
            let launched = strategy.and_then(|strategy| {
                case.work.launch(client, choice)?;
                Ok(strategy)
            });
            let strategy = match launched {
                Ok(strategy) => strategy,
                Err(error) if is_beyond_device(&error) => continue,
                Err(error) => return Err(error),
            };
            let is_hot = case.measured && choice == StrategyChoice::Inferred;
            for kernel in recorder.take() {
                let id = kernel.id();
                if !seen.insert(id.clone()) {
                    continue;
                }
                let name = function(&id);
                found.push(Found {
                    name,
                    // The reduction of partial sums has no strategy.
                    strategy: strategy.filter(|_| !matches!(name, "param_reduce" | "fill")),
                    dtype: case.work.dtype(),
                    case: case.name.clone(),
                    knobs: choice.knobs(),
                    is_hot,
                    kernel,
                });
            }
        }
    }
    Ok(found)
}

/// True if the device lacks something, false if the case is invalid.
fn is_beyond_device(error: &LaunchError) -> bool {
    matches!(
        error,
        LaunchError::Plan(_)
            | LaunchError::DType { .. }
            | LaunchError::Activation { .. }
            | LaunchError::AddressSpace { .. }
    )
}

/// The `#[cube]` function of a kernel: CubeCL names a type after it.
fn function(id: &KernelId) -> &'static str {
    let path = id.type_name().split('<').next().unwrap_or_default();
    path.rsplit("::").nth(1).unwrap_or(path)
}
