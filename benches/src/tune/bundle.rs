//! What was tuned and compiled, as a file that an application ships.

use std::path::Path;

use anyhow::{Result, anyhow};
use cubecl::{bundle::BundleFormat, environment};

use super::described::keep_kernels;
use crate::environment::apart;

/// Runs `tune` in an environment of CubeCL's of its own, and exports what it holds then as a bundle: every
/// choice, and every kernel where the runtime keeps those. To be called before any device is used.
///
/// # Errors
///
/// Where `tune` has one, or the bundle cannot be written.
pub fn bundled(bundle: &Path, tune: impl FnOnce() -> Result<()>) -> Result<()> {
    keep_kernels();
    apart("bundle", || {
        tune()?;
        let saved = environment::bundle().save(bundle, BundleFormat::Sqlite);
        saved.map_err(|error| anyhow!("{}: {error}", bundle.display()))?;
        Ok(())
    })
}
