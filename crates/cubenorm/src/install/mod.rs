//! Norms of unmodified models, matched in Burn's stream of operations.
//!
//! Burn registers operations lazily, and fusers compete for blocks of them. The one here reads a block as data flow
//! ([`graph`]), looks for a norm in it ([`pattern`]), orders the rest of the block around it ([`schedule`]), and lowers it
//! to the description that everything else in this crate lowers to ([`lower`], [`run`]).

#[cfg(feature = "cube")]
mod burns;
#[cfg(feature = "cube")]
mod fuser;
#[cfg(feature = "cube")]
mod graph;
#[cfg(feature = "cube")]
mod lower;
#[cfg(feature = "cube")]
mod pattern;
mod reason;
#[cfg(feature = "cube")]
mod registry;
mod report;
#[cfg(feature = "cube")]
mod run;
#[cfg(feature = "cube")]
mod schedule;
#[cfg(feature = "cube")]
mod threshold;

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
    *state = enter()?;
    Ok(())
}

/// Takes back [`install`].
///
/// # Errors
///
/// [`InstallError::FusionRunning`] once a tensor of a CubeCL device exists.
pub fn uninstall() -> Result<(), InstallError> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(feature = "cube")]
    if *state == InstallState::Installed {
        registry::leave()?;
    }
    *state = InstallState::NotInstalled;
    Ok(())
}

#[cfg(feature = "cube")]
fn enter() -> Result<InstallState, InstallError> {
    registry::enter()?;
    Ok(InstallState::Installed)
}

#[cfg(not(feature = "cube"))]
fn enter() -> Result<InstallState, InstallError> {
    Ok(InstallState::NoFusion)
}

/// The norms that were matched so far, and the candidates that were not.
pub fn install_report() -> InstallReport {
    let state = *STATE.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(feature = "cube")]
    let (matched, declined) = report::lists();
    #[cfg(not(feature = "cube"))]
    let (matched, declined) = Default::default();
    InstallReport {
        state,
        matched,
        declined,
    }
}
