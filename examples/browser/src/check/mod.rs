//! Every norm of the library and every strategy of the kernels, in f32, against float64 on the host.

mod bound;
mod data;
mod kernels;
mod layers;

use serde::Serialize;
use wasm_bindgen::prelude::*;

use crate::device::opened;

/// The title of a case.
#[derive(Serialize)]
pub(crate) struct Title {
    /// The group that the page puts it in: `norms` or `strategies`.
    group: &'static str,
    name: String,
    shape: String,
}

/// The result of a case.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    /// The output.
    forward: Option<Agreement>,
    /// The gradients of input, scale and bias that there are.
    backward: Option<Agreement>,
    /// Why the case cannot run on this device.
    left_out: Option<String>,
}

/// The largest error of a tensor's elements.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Agreement {
    /// Absolute. Null if an element is not finite.
    error: f64,
    /// In units of the bound that the element had to keep to.
    of_bound: f64,
    pass: bool,
}

pub(crate) fn titles() -> Vec<Title> {
    layers::titles().chain(kernels::titles()).collect()
}

pub(crate) async fn run(case: usize) -> Result<Report, JsError> {
    let opened = opened()?;
    // Every run checks the same plans.
    cubenorm::set_tuning(cubenorm::Tuning::Off);
    let layers = layers::titles().count();
    match case.checked_sub(layers) {
        None => layers::run(case, &opened).await,
        Some(case) => kernels::run(case, &opened).await,
    }
}

/// Compares a tensor with its reference, each element within its bound.
fn compare(
    actual: &[f64],
    expected: &[f64],
    bound: impl Fn(usize) -> f64,
) -> Result<Agreement, JsError> {
    if actual.len() != expected.len() {
        let (actual, expected) = (actual.len(), expected.len());
        return Err(JsError::new(&format!(
            "a result has {actual} elements: expected {expected}"
        )));
    }
    let mut worst = Agreement {
        error: 0.0,
        of_bound: 0.0,
        pass: true,
    };
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        let of_bound = error / bound(at);
        // A comparison with NaN is false.
        worst.pass &= of_bound <= 1.0;
        if !(error <= worst.error) {
            worst.error = error;
        }
        if !(of_bound <= worst.of_bound) {
            worst.of_bound = of_bound;
        }
    }
    Ok(worst)
}

impl Agreement {
    /// The worse of two.
    fn and(self, other: Self) -> Self {
        let worse = |a: f64, b: f64| if a >= b || a.is_nan() { a } else { b };
        Self {
            error: worse(self.error, other.error),
            of_bound: worse(self.of_bound, other.of_bound),
            pass: self.pass && other.pass,
        }
    }
}
