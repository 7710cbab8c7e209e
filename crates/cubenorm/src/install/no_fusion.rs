//! A build without a runtime of CubeCL's has no fusion.

use super::{DeclinedNorm, InstallError, InstallState, MatchedNorm};

#[expect(clippy::unnecessary_wraps, reason = "the module of other builds fails")]
pub(super) fn enter() -> Result<InstallState, InstallError> {
    Ok(InstallState::NoFusion)
}

#[expect(clippy::unnecessary_wraps, reason = "the module of other builds fails")]
pub(super) fn leave() -> Result<(), InstallError> {
    Ok(())
}

pub(super) fn lists() -> (Vec<MatchedNorm>, Vec<DeclinedNorm>) {
    Default::default()
}
