//! Autotunes kernels in a separate process before measurements.
//!
//! On the first use of a kernel for a shape, Burn measures several candidates. It caches the
//! fastest in memory and on disk. On CubeCL's CPU runtime some candidates grow the pool of worker
//! threads beyond the cores. The pool never shrinks, and all later kernels of the process are
//! several times slower. The measuring process therefore does not autotune.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;

/// True if the device called `name` autotunes its kernels. The pure-Rust backend does not.
pub fn needed(name: &str) -> bool {
    name != "flex"
}

/// Runs this program again with the same arguments and `flag`, and discards its output.
///
/// # Errors
///
/// If that process fails. The error contains its standard error.
pub fn in_another_process(flag: &str) -> Result<()> {
    let _progress = Progress::start("Tuning kernels; a first run on a device can take minutes");
    let program = env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        // First, since the other arguments may contain `--`.
        .arg(flag)
        .args(env::args_os().skip(1))
        .output()
        .context("cannot run this program a second time")?;
    ensure!(
        output.status.success(),
        "the process that tunes the kernels failed ({}):\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
