//! LLVM, the compiler of the `cpu` runtime.
//!
//! CubeCL's `tracel-llvm-bundler` downloads a bundle while it builds, if the network allows it.

use std::{
    env,
    net::{TcpStream, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    cargo::locked,
    exec::{Cmd, workspace},
};

const BUNDLER: &str = "tracel-llvm-bundler";
/// Source of the bundler's download.
const SOURCE: &str = "github.com:443";

/// State of LLVM for a build with `cpu`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Llvm {
    /// The bundle is in place.
    Installed,
    /// The bundler can fetch it.
    Downloadable,
    /// There is none and no way to it.
    Missing,
}

/// Looks for LLVM. Installs it first if a script next to the clone does that.
pub(crate) fn find() -> Result<Llvm> {
    if installed() {
        return Ok(Llvm::Installed);
    }
    let setup = workspace().join("../shared/llvm/setup.sh");
    if setup.is_file() {
        Cmd::new("bash").arg(setup).aside().run()?;
        if installed() {
            return Ok(Llvm::Installed);
        }
    }
    Ok(if reachable() {
        Llvm::Downloadable
    } else {
        Llvm::Missing
    })
}

fn installed() -> bool {
    let bundle = bundle().ok();
    bundle.is_some_and(|bundle| bundle.join(".tracel-llvm-installed").exists())
}

/// The version of the bundle, which is LLVM's with a number of its own.
pub(crate) fn version() -> Result<String> {
    locked(BUNDLER)
}

/// The folder that the bundler of our lock file looks into.
fn bundle() -> Result<PathBuf> {
    let version = version()?;
    let data = dirs::data_local_dir().context("no home folder")?;
    Ok(data.join("tracel").join(format!("tracel-llvm-{version}")))
}

fn reachable() -> bool {
    // Through a proxy the name need not resolve here.
    if ["HTTPS_PROXY", "https_proxy"]
        .iter()
        .any(|name| env::var_os(name).is_some())
    {
        return true;
    }
    let addresses = SOURCE.to_socket_addrs().into_iter().flatten();
    addresses
        .take(2)
        .any(|a| TcpStream::connect_timeout(&a, Duration::from_secs(3)).is_ok())
}
