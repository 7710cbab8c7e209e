//! Norms of unmodified models, matched in Burn's stream of operations.
//!
//! [`fusion`] has everything that needs a runtime with fusion, the rest is the interface.

#[cfg_attr(not(feature = "cube"), path = "no_fusion.rs")]
mod fusion;
mod reason;
mod report;

use std::sync::{Mutex, PoisonError};

pub use reason::DeclineReason;
pub use report::{DeclinedNorm, InstallReport, InstallState, MatchedNorm};

/// A reason that [`install`] or [`uninstall`] changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Burn's fusion has started, and takes no fuser any more.
    #[error(
        "Burn's fusion is running already: call it before the first tensor of a CubeCL device, for instance first in main"
    )]
    FusionRunning,
}

/// Environment variable that keeps norms from being matched: `off`.
const VARIABLE: &str = "CUBENORM_INSTALL";

static STATE: Mutex<InstallState> = Mutex::new(InstallState::NotInstalled);

/// Runs the norms of unmodified Burn models on the kernels of this crate.
///
/// Call it first in `main`. Burn's fusion then offers every block of operations to this crate too. A norm in it becomes one
/// operation of this crate: a layer of `burn::nn`, a layer inside `burn::nn::transformer::TransformerEncoder`, generated
/// code, or a norm written out of tensor operations. Everything else runs as before.
///
/// [`nn`](crate::nn) says for whom this is, and for whom the layers and the functions are.
///
/// # What to expect
///
/// - A model with large norms is faster, and its other operations run in Burn's kernels as before. The benchmark's baseline
///   `installed` compares single norms. `examples/onnx_import` and `examples/minilm` compare models.
/// - A block with norms is run as one unit. Its other operations are fused greedily from its head, as in Burn's search.
/// - If more than five independent chains of operations are queued, Burn may split a norm from its scale and bias.
/// - A block waits for up to 256 operations. So a long chain of norms that are left to Burn starts later than without
///   `install`: 0.75 of the speed for 16 RMS norms on an H200 under CUDA.
/// - A chain of batch norms of `[1, channels]` is left to Burn, in smaller kernels than Burn's own.
///
/// # Matched
///
/// The data flow is matched, not the order or the spelling of operations. With `mean` and `variance` over any axes:
///
/// - `(x - mean) / sqrt(variance + epsilon)`: layer norm, and group and instance norm with reshapes around it
/// - `x / sqrt(mean(x^2) + epsilon)`: RMS norm, and `x / sqrt(sum(x^2))`: L2 norm
/// - `(x - mean) / sqrt(variance + epsilon)` with a mean and a variance from outside: batch norm at inference
///
/// Epsilon may be behind the root. A mean may be a sum divided by its number of elements. The variance may be
/// `mean((x - mean)^2)`, `mean(x^2) - mean^2` or Burn's `var_bias`. The root may be `sqrt`, `powf_scalar(0.5)`,
/// `powf_scalar(-0.5)` or `recip`. Operands may be commuted. Casts between f16, bf16 and f32, and reshapes, may be anywhere.
///
/// The kernel takes what is next to the norm too:
///
/// - a residual that is added in front, whose sum is written if something reads it
/// - a scale and a bias of any shape that broadcasts, or a residual that is added last
/// - ReLU, leaky ReLU, GELU, its tanh form, SiLU, sigmoid or tanh, or additions and multiplications by numbers
///
/// # Not matched
///
/// What does not fit exactly runs as Burn runs it, and [`install_report`] has the reason. The most frequent ones:
///
/// - An intermediate is read elsewhere too, for instance the variance.
/// - The variance is unbiased, clamped, or without epsilon.
/// - There is elementwise work on both sides of an RMS norm, an L2 norm, or a batch norm at inference, which Burn fuses into
///   its own kernel. A layer norm makes up for that.
/// - The epsilon is a tensor, so that its value is on the device.
/// - The mean and the rest of the norm are separated by an operation that Burn does not fuse.
///
/// # Training
///
/// Autodiff keeps intermediates of the forward pass for the backward pass. So nothing is matched while gradients are
/// tracked, and training runs as without `install`. The layers of [`nn`](crate::nn) have a fused backward pass.
///
/// # Environment
///
/// `CUBENORM_INSTALL=off` keeps everything as it is without the call, to find out whether a difference comes from here.
///
/// A build without a runtime of CubeCL's, such as `flex` alone, has no fusion. The call then changes nothing, and the
/// report says so.
///
/// # Logs
///
/// Each norm and each candidate that is left to Burn is logged once, at level `debug`, with the target `cubenorm::install`.
///
/// # Errors
///
/// [`InstallError::FusionRunning`] once a tensor of a CubeCL device exists. A second call is no error.
///
/// # Example
///
/// ```no_run
/// use burn::tensor::{Device, Distribution, Tensor};
///
/// fn main() -> Result<(), cubenorm::InstallError> {
///     cubenorm::install()?;
///
///     let device = Device::default();
///     let norm = burn::nn::LayerNormConfig::new(768).init(&device);
///     let x = Tensor::<3>::random([8, 128, 768], Distribution::Default, &device);
///     println!("{}", norm.forward(x));
///     println!("{}", cubenorm::install_report());
///     Ok(())
/// }
/// ```
pub fn install() -> Result<(), InstallError> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let InstallState::Installed | InstallState::NoFusion = *state {
        return Ok(());
    }
    let value = std::env::var(VARIABLE).unwrap_or_default();
    if value.trim().eq_ignore_ascii_case("off") {
        *state = InstallState::Off;
        return Ok(());
    }
    *state = fusion::enter()?;
    Ok(())
}

/// Takes back [`install`], as long as no tensor of a CubeCL device exists.
///
/// # Errors
///
/// [`InstallError::FusionRunning`] once one exists.
///
/// # Example
///
/// ```
/// use cubenorm::InstallState;
///
/// cubenorm::install()?;
/// cubenorm::uninstall()?;
/// assert_eq!(cubenorm::install_report().state, InstallState::NotInstalled);
/// # Ok::<(), cubenorm::InstallError>(())
/// ```
pub fn uninstall() -> Result<(), InstallError> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if *state == InstallState::Installed {
        fusion::leave()?;
    }
    *state = InstallState::NotInstalled;
    Ok(())
}

/// The norms that were matched so far, and the candidates that were left to Burn.
///
/// # Example
///
/// ```
/// for norm in cubenorm::install_report().matched {
///     println!("{} x {}: {}", norm.runs, norm.norm, norm.description);
/// }
/// ```
pub fn install_report() -> InstallReport {
    let state = *STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let (matched, declined) = fusion::lists();
    InstallReport {
        state,
        matched,
        declined,
    }
}
