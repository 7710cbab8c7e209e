//! Tuned choices and compiled kernels, as a file that an application ships.

use std::path::Path;

use anyhow::{Result, anyhow};
use cubecl::{bundle::BundleFormat, environment};

use super::described::keep_kernels;
use crate::environment::apart;

/// Runs `tune` in a CubeCL environment of its own, and exports that environment as a bundle: every
/// choice, and every kernel if the runtime keeps kernels. Call it before any device is used.
///
/// # Errors
///
/// If `tune` fails, or the bundle cannot be written.
pub fn bundled(bundle: &Path, tune: impl FnOnce() -> Result<()>) -> Result<()> {
    keep_kernels();
    apart("bundle", || {
        tune()?;
        let saved = environment::bundle().save(bundle, BundleFormat::Sqlite);
        saved.map_err(|error| anyhow!("{}: {error}", bundle.display()))?;
        Ok(())
    })
}
