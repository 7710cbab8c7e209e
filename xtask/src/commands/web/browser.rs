//! Headless Chromium, with SwiftShader as the adapter.

use std::{
    fs,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::server::Server;
use crate::{
    cargo::target_folder,
    exec::{Cmd, on_path},
    setup,
};

/// Names of the program, Debian's first.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Time for all steps of the page.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// A browser that runs until it is dropped.
pub(super) struct Browser {
    child: Child,
    log: PathBuf,
    profile: PathBuf,
}

impl Browser {
    pub(super) fn open(address: &str, yes: bool) -> Result<Self> {
        let folder = target_folder("web-check");
        fs::create_dir_all(&folder)?;
        let (log, profile) = (folder.join("chromium.log"), folder.join("profile"));
        let command = command(&profile, yes)?
            // A port for tools keeps it open. None connects.
            .args(["--remote-debugging-port=0", "--enable-logging=stderr"])
            .arg(address);
        command.announce();
        let output = File::create(&log)?;
        let child = command
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .context("Chromium could not be started")?;
        Ok(Self {
            child,
            log,
            profile,
        })
    }

    /// Waits for the page's report.
    pub(super) fn wait_for(mut self, server: &Server) -> Result<String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(report) = server.report(Duration::from_secs(1)) {
                return Ok(report);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "Chromium ended early ({status}): see {}",
                    self.log.display()
                );
            }
        }
        let minutes = PATIENCE.as_secs() / 60;
        bail!(
            "no report after {minutes} minutes: see {}",
            self.log.display()
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Neither matters for the result: it may have ended, and the next run writes the profile anew.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

/// Chromium without a window, with a profile of its own.
fn command(profile: &Path, yes: bool) -> Result<Cmd> {
    let mut profile_argument = std::ffi::OsString::from("--user-data-dir=");
    profile_argument.push(profile);
    let command = Cmd::new(program(yes)?)
        .args([
            "--headless",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args(["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
        .arg(profile_argument);
    // Its sandbox does not start as root.
    Ok(match setup::is_root() {
        true => command.arg("--no-sandbox"),
        false => command,
    })
}

fn found() -> Option<&'static str> {
    NAMES.into_iter().find(|name| on_path(name))
}

/// The program, installed if it is missing.
fn program(yes: bool) -> Result<&'static str> {
    if found().is_none() {
        setup::install(NAMES[0], yes)?;
    }
    found().context("still no Chromium")
}
