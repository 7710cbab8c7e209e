//! `cargo xtask wasm`: type-checks the crates that run in a browser.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::{
    cargo::target_folder,
    exec::{Cmd, on_path},
    machine::said_by,
    setup::is_root,
    style,
};

/// Type-check the crates that run in a browser, for wasm32-unknown-unknown.
///
/// Uses rustup's target if it is installed. Otherwise cargo builds the standard library with
/// Debian's packages rustc-web, cargo-web and rust-web-src. Nothing is linked, and the checks have
/// their own target folder. Without either toolchain the check is skipped. In CI (`CI` is set) that
/// is a failure if the packages could be installed.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Packages to check [default: all]. The kernels, on CubeCL alone, take minutes; the library, on
    /// Burn, takes many minutes the first time
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = CRATES)]
    package: Vec<String>,
}

/// The crates that run in a browser.
const CRATES: [&str; 2] = ["cubenorm-kernels", "cubenorm"];
pub(super) const TARGET: &str = "wasm32-unknown-unknown";
/// The runtime that a browser has.
const FEATURE: &str = "webgpu";
/// Debian's packages that can build the standard library for the target.
pub(super) const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Folder of their compiler and cargo.
const DEBIAN: &str = "/usr/bin";
/// Optimized dependencies cost time and are never run here: only build scripts and macros would be.
const UNOPTIMIZED: &str = "profile.dev.package.\"*\".opt-level=0";

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(toolchain) = Toolchain::find() else {
        let names = PACKAGES.join(", ");
        if env::var_os("CI").is_some() && is_installable() {
            bail!("no toolchain for {TARGET}: expected Debian's packages {names} to be installed");
        }
        anstream::println!(
            "{}: no toolchain for {TARGET} (rustup target add {TARGET}, or Debian's {names})",
            style::warning("skipped")
        );
        return Ok(());
    };
    let is_asked =
        |name: &&str| args.package.is_empty() || args.package.iter().any(|it| it == name);
    // One at a time: cargo would unite their features.
    let mut crates = CRATES.into_iter().filter(is_asked);
    crates.try_for_each(|name| toolchain.check(name).run())
}

/// A compiler that has the target, or can build its standard library.
#[derive(Debug, PartialEq)]
pub(super) enum Toolchain {
    /// The workspace's own compiler, with the target's standard library.
    Installed,
    /// Debian's compiler of this path, with the standard library's sources.
    Sources { rustc: PathBuf },
}

impl Toolchain {
    pub(super) fn find() -> Option<Self> {
        let has_library = || {
            let arguments = ["--print", "target-libdir", "--target", TARGET];
            let folder = said_by("rustc", &arguments)?;
            Path::new(&folder).is_dir().then_some(Self::Installed)
        };
        has_library().or_else(|| Self::sources(&Path::new(DEBIAN).join("rustc")))
    }

    /// A compiler that has the standard library's sources, and is not older than the workspace
    /// allows.
    fn sources(rustc: &Path) -> Option<Self> {
        let said = |arguments: &[&str]| said_by(&rustc.to_string_lossy(), arguments);
        let sysroot = said(&["--print", "sysroot"])?;
        let lock = Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock");
        let version = said(&["--version"])?;
        let version = version.split_whitespace().nth(1)?;
        let is_usable =
            lock.is_file() && rustc.with_file_name("cargo").is_file() && is_recent(version);
        is_usable.then(|| Self::Sources {
            rustc: rustc.to_owned(),
        })
    }

    fn check(&self, package: &str) -> Cmd {
        self.cargo("check")
            .args(["--config", UNOPTIMIZED])
            .args(["-p", package, "--no-default-features"])
            .args(["--features", FEATURE])
    }

    /// `cargo VERB` for the target, in its own target folder.
    pub(super) fn cargo(&self, verb: &str) -> Cmd {
        let command = match self {
            Self::Installed => Cmd::new("cargo").arg(verb),
            Self::Sources { rustc } => Cmd::new(rustc.with_file_name("cargo").to_string_lossy())
                .args([verb, "-Z", "build-std=std,panic_abort"])
                .env("RUSTC", rustc)
                // Building the standard library is an unstable option.
                .env("RUSTC_BOOTSTRAP", "1"),
        };
        command
            .args(["--target", TARGET, "--target-dir"])
            .arg(target_folder("wasm"))
            // As on docs.rs: build scripts leave out what only a linker needs.
            .env("DOCS_RS", "1")
    }
}

/// True if Debian's packages can be installed here and are recent enough.
fn is_installable() -> bool {
    let newest = || {
        let shown = said_by("apt-cache", &["show", "--no-all-versions", PACKAGES[0]])?;
        let version = shown
            .lines()
            .find_map(|line| line.strip_prefix("Version: "));
        version.map(str::to_owned)
    };
    is_root() && on_path("apt-get") && newest().is_some_and(|version| is_recent(&version))
}

/// True if a version is at least the one that the workspace promises to build with.
fn is_recent(version: &str) -> bool {
    matches!(
        (minor(version), minor(env!("CARGO_PKG_RUST_VERSION"))),
        (Some(found), Some(least)) if found >= least
    )
}

/// Major and minor number of `1.96.0` or `1.96.0+dfsg1-1`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(minor("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert_eq!(minor("1.95"), Some((1, 95)));
        assert_eq!(minor("nightly"), None);
        assert!(is_recent("1.100.0") && is_recent("2.0.0"));
        assert!(!is_recent("1.85.0+dfsg3-1") && !is_recent(""));
    }

    #[test]
    fn debians_cargo_builds_the_standard_library() {
        let sources = Toolchain::Sources {
            rustc: "/usr/bin/rustc".into(),
        };
        let command = sources.check("cubenorm-kernels").to_string();
        let start = "RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 DOCS_RS=1 /usr/bin/cargo check -Z ";
        assert!(command.starts_with(start), "{command}");
        let installed = Toolchain::Installed.check("cubenorm").to_string();
        assert!(
            installed.starts_with("DOCS_RS=1 cargo check "),
            "{installed}"
        );
        for command in [command, installed] {
            assert!(command.contains("--target wasm32-unknown-unknown"));
            assert!(command.ends_with("--no-default-features --features webgpu"));
        }
    }

    #[test]
    fn a_compiler_without_sources_is_not_used() {
        assert_eq!(Toolchain::sources(Path::new("/nowhere/rustc")), None);
    }
}
