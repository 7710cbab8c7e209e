//! What was tuned and compiled, as a file that an application ships.

use std::path::Path;

use anyhow::{Result, anyhow};
use cubecl::{bundle::BundleFormat, environment};

/// Runs `tune` in an environment of CubeCL's of its own, and exports what it holds then as a bundle: every
/// choice, and every kernel where the runtime keeps those.
///
/// # Errors
///
/// Where `tune` has one, or the bundle cannot be written.
pub fn bundled(bundle: &Path, tune: impl FnOnce() -> Result<()>) -> Result<()> {
    environment::activate(format!("cubenorm-bundle-{}", std::process::id()));
    let left = environment::path();
    let result = tune().and_then(|()| {
        let saved = environment::bundle().save(bundle, BundleFormat::Sqlite);
        saved.map_err(|error| anyhow!("{}: {error}", bundle.display()))?;
        Ok(())
    });
    // What is in the bundle is not needed twice, and nobody else reads it.
    for suffix in ["", "-wal", "-shm"] {
        let mut file = left.clone().into_os_string();
        file.push(suffix);
        let _ = std::fs::remove_file(file);
    }
    result
}
