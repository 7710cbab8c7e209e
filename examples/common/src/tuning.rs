//! Tunes the kernels before anything is timed, in another process.
//!
//! The first time that a kernel is needed for a shape, Burn tries out several and remembers the
//! fastest, in memory and on disk. On CubeCL's CPU runtime that leaves its mark on the process:
//! some of the candidates make the pool of worker threads grow beyond the cores, it never shrinks
//! again, and from then on every kernel is several times slower. Which is why the process that
//! measures is not the one that tunes.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;

/// Whether the device called `name` tunes its kernels. The pure-Rust backend has none.
pub fn needed(name: &str) -> bool {
    name != "flex"
}

/// Runs this program once more with the same arguments and `flag`, to the end, and discards what it
/// prints.
///
/// # Errors
///
/// When that process fails; the error holds what it had to say.
pub fn in_another_process(flag: &str) -> Result<()> {
    let _progress = Progress::start("Tuning kernels; a first run on a device can take minutes");
    let program = env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        // First, since what follows may hold a `--` that turns the rest into sentences.
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
