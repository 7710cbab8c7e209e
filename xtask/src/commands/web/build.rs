//! The page as a folder of static files.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    cargo::{locked, target_folder},
    commands::wasm::{PACKAGES, TARGET, Toolchain},
    exec::{Cmd, on_path, workspace},
    machine::said_by,
    setup,
};

const PACKAGE: &str = "cubenorm-example-browser";
/// The package's library.
const LIBRARY: &str = "browser";
/// The profile of the workspace whose programs are small.
const PROFILE: &str = "web";
/// The page's own files, in the workspace.
const SOURCES: &str = "examples/browser/page";
const BINDGEN: &str = "wasm-bindgen";
/// LLVM's linker, in Debian's package of the same name.
const LLD: &str = "lld";
/// Compressor of web servers, in Debian's package of the same name.
const BROTLI: &str = "brotli";

/// Folder of the page, as it was built before.
pub(super) fn built() -> Result<PathBuf> {
    let page = target_folder("web");
    ensure!(
        module(&page).is_file(),
        "there is no page in {}: run this without --no-build first",
        page.display()
    );
    Ok(page)
}

/// Builds the page, and returns its folder.
pub(super) fn build(yes: bool) -> Result<PathBuf> {
    let toolchain = toolchain(yes)?;
    let bindgen = bindgen()?;
    with_linker(toolchain.cargo("build"), &toolchain, yes)?
        .args(["--profile", PROFILE, "-p", PACKAGE])
        .run()?;
    let page = target_folder("web");
    fs::create_dir_all(&page).with_context(|| format!("cannot create {}", page.display()))?;
    let program = target_folder("wasm")
        .join(TARGET)
        .join(PROFILE)
        .join(LIBRARY)
        .with_extension("wasm");
    Cmd::new(bindgen.to_string_lossy())
        .args(["--target", "web", "--no-typescript"])
        .args(["--remove-name-section", "--remove-producers-section"])
        .arg("--out-dir")
        .arg(&page)
        .args(["--out-name", LIBRARY])
        .arg(program)
        .run()?;
    let sources = workspace().join(SOURCES);
    let cannot = || format!("cannot copy the files of {}", sources.display());
    for entry in fs::read_dir(&sources).with_context(cannot)? {
        let file = entry.with_context(cannot)?;
        fs::copy(file.path(), page.join(file.file_name())).with_context(cannot)?;
    }
    Ok(page)
}

/// Size of the module as servers send it.
pub(super) fn compressed(page: &Path, yes: bool) -> Result<usize> {
    if !on_path(BROTLI) {
        setup::install(BROTLI, yes)?;
    }
    let brotli = Cmd::new(BROTLI).args(["--quality=9", "--lgwin=24", "--stdout"]);
    let brotli = brotli.arg(module(page));
    let output = brotli.command().output();
    let output = output.with_context(|| format!("`{BROTLI}` could not be started"))?;
    ensure!(output.status.success(), "`{brotli}` failed");
    Ok(output.stdout.len())
}

fn module(page: &Path) -> PathBuf {
    page.join(format!("{LIBRARY}_bg.wasm"))
}

/// A compiler for the target, installed if it is missing.
fn toolchain(yes: bool) -> Result<Toolchain> {
    if let Some(toolchain) = Toolchain::find() {
        return Ok(toolchain);
    }
    // Another compiler than rustup's has no target to add.
    if on_path("rustup") {
        let added = Cmd::new("rustup").args(["target", "add", TARGET]).status();
        if added.is_ok_and(|status| status.success())
            && let Some(toolchain) = Toolchain::find()
        {
            return Ok(toolchain);
        }
    }
    for package in PACKAGES {
        setup::install(package, yes)?;
    }
    match Toolchain::find() {
        Some(toolchain) => Ok(toolchain),
        None => bail!("still no compiler for {TARGET} that the workspace accepts"),
    }
}

/// The command with a linker for the target, which rustup's compiler has and Debian's has not.
fn with_linker(command: Cmd, toolchain: &Toolchain, yes: bool) -> Result<Cmd> {
    if *toolchain == Toolchain::Installed {
        return Ok(command);
    }
    if let Some(folder) = rustups_linker() {
        // The compiler looks for `rust-lld` on the path.
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = iter::once(folder).chain(env::split_paths(&path));
        return Ok(command.env("PATH", env::join_paths(folders)?));
    }
    if !on_path(LLD) {
        setup::install(LLD, yes)?;
    }
    Ok(command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", LLD))
}

/// Folder of the linker of rustup's compiler.
fn rustups_linker() -> Option<PathBuf> {
    let sysroot = said_by("rustc", &["--print", "sysroot"])?;
    let version = said_by("rustc", &["-vV"])?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))?;
    let folder = Path::new(&sysroot)
        .join("lib/rustlib")
        .join(host)
        .join("bin");
    let program = folder
        .join("rust-lld")
        .with_extension(env::consts::EXE_EXTENSION);
    program.is_file().then_some(folder)
}

/// The tool that writes the module's JavaScript, of the library's version.
fn bindgen() -> Result<PathBuf> {
    let version = locked(BINDGEN)?;
    let is_same = |program: &str| {
        let said = said_by(program, &["--version"]);
        said.is_some_and(|said| said.split(' ').nth(1) == Some(version.as_str()))
    };
    if is_same(BINDGEN) {
        return Ok(BINDGEN.into());
    }
    let folder = target_folder("tools");
    let program = folder.join("bin").join(BINDGEN);
    let program = program.with_extension(env::consts::EXE_EXTENSION);
    if !is_same(&program.to_string_lossy()) {
        Cmd::new("cargo")
            .args(["install", "--force", "--root"])
            .arg(&folder)
            .arg("--target-dir")
            .arg(folder.join("build"))
            .args(["--version", &version, "wasm-bindgen-cli"])
            .run()?;
    }
    Ok(program)
}
