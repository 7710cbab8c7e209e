//! Which kernels the cases of the catalogue come to on a device.

use std::collections::HashSet;

use cubecl::prelude::*;
use cubenorm_core::{DType, Knobs, Strategy, StrategyChoice};
use cubenorm_kernels::LaunchError;

use crate::{Case, Kernel, Profile, Recorder};

/// A kernel, and the first launch that it came from.
#[derive(Clone)]
pub struct Found {
    /// The kernel.
    pub kernel: Kernel,
    /// The name of its `#[cube]` function.
    pub name: &'static str,
    /// The strategy of the plan, where there was one.
    pub strategy: Option<Strategy>,
    /// The dtype of the input.
    pub dtype: DType,
    /// The case that it was launched for.
    pub case: String,
    /// What was decided of its plan.
    pub knobs: Knobs,
    /// Whether the benchmark measures it: a forward kernel of an analytic plan for one of its shapes.
    pub is_hot: bool,
}

/// Every kernel that the cases come to on a device, once each.
///
/// # Errors
///
/// Where a case is wrong. What a device cannot do, or has no plan for, is left out.
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
                    // What adds up partial sums is cut by no plan.
                    strategy: strategy.filter(|_| name != "fold"),
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

/// Whether it is the device that lacks something, and not the case that is wrong.
fn is_beyond_device(error: &LaunchError) -> bool {
    matches!(
        error,
        LaunchError::Plan(_)
            | LaunchError::DType { .. }
            | LaunchError::Activation { .. }
            | LaunchError::AddressSpace { .. }
    )
}

/// The `#[cube]` function that a kernel comes from: CubeCL names a type after it.
fn function(id: &KernelId) -> &'static str {
    let path = id.type_name().split('<').next().unwrap_or_default();
    path.rsplit("::").nth(1).unwrap_or(path)
}
