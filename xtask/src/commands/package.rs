//! `cargo xtask package`: the checks as one archive, for a machine with a GPU and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::conformance;
use crate::{
    cargo::{Build, on},
    device::Device,
    exec::{Cmd, workspace},
    python::Python,
    style,
};

/// Build an archive that checks a device on another machine: nothing there but its driver is
/// needed.
///
/// It has the whole suite as one stripped program, ONNX's node tests, and `gpu-check`, which runs
/// them and writes a report. It runs on any Linux of this architecture with the C library that it
/// names, or a newer one.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device to check: cuda, rocm, vulkan, wgpu or cpu
    #[arg(long, value_name = "NAME")]
    device: Device,
    /// Leave it in this folder
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    out: PathBuf,
}

/// The suite in one program, and the feature that it takes.
const SUITE: &str = "whole";
/// Largest size of a compressed package.
const LARGEST: u64 = 60 << 20;
/// The oldest C library that it has to run with.
const GLIBC: (u32, u32) = (2, 36);
/// Libraries that a program may need of a machine: the C library, its loader, and GCC's runtime.
const SYSTEM: [&str; 8] = [
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libgcc_s.so",
    "libstdc++.so",
    "ld-linux",
];
/// Further libraries of LLVM, which the package carries.
const CARRIED: [&str; 2] = ["libz.so", "libzstd.so"];
/// The Python package that has NVIDIA's library of mathematical functions, which the compiler links
/// into kernels that call one.
const LIBDEVICE: &str = "nvidia-cuda-nvcc-cu12==12.9.86";

/// Names of the package's parts.
pub(crate) const PROGRAM: &str = "gpu-check";
pub(crate) const CASES: &str = "cases";
pub(crate) const MANIFEST: &str = "package.json";
pub(crate) const LIBRARIES: &str = "lib";
/// The folder of Vulkan's loader, for a machine that has a driver and no loader.
pub(crate) const LOADER: &str = "loader";

/// A package's description of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The device that it checks, which is the feature that it was built with.
    pub device: String,
    /// The version of the project.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The file of the suite.
    pub suite: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        cfg!(target_os = "linux"),
        "packages are for Linux and are built there"
    );
    let folder = assemble(args.device, &workspace().join(&args.out))?;
    let archive = compress(&folder)?;
    let size = fs::metadata(&archive)?.len();
    anstream::println!(
        "{} {} ({:.1} MiB)",
        style::good("packaged"),
        archive.display(),
        size as f64 / f64::from(1 << 20)
    );
    let name = name_of(args.device);
    println!("There: tar xzf {name}.tar.gz && {name}/{PROGRAM} --out report");
    ensure!(
        size <= LARGEST,
        "the archive has {size} bytes: it may have {LARGEST}"
    );
    Ok(())
}

fn name_of(device: Device) -> String {
    format!("cubenorm-{PROGRAM}-{device}-{}", std::env::consts::ARCH)
}

/// Builds all parts and puts them into a folder of `out`.
pub(crate) fn assemble(device: Device, out: &Path) -> Result<PathBuf> {
    ensure!(
        device != Device::Flex,
        "no kernel of ours runs on flex: choose cuda, rocm, vulkan, wgpu or cpu"
    );
    let folder = out.join(name_of(device));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;

    let features = format!("{device},{SUITE}");
    let command = on("test", &["cubenorm-tests"], &features).args(["--test", SUITE]);
    let suite = Build::test_program(command, SUITE)?;
    strip(&suite, &folder.join(SUITE))?;
    let runner = std::env::current_exe().context("this program has no file")?;
    strip(&runner, &folder.join(PROGRAM))?;

    if let Err(error) = add_cases(&folder) {
        anstream::eprintln!(
            "{} no ONNX node tests: {error:#}",
            style::warning("without")
        );
    }
    if device == Device::Cuda
        && let Err(error) = add_libdevice(&folder)
    {
        anstream::eprintln!(
            "{} no libdevice, so that activations need CUDA's toolkit there: {error:#}",
            style::warning("without")
        );
    }
    if matches!(device, Device::Wgpu | Device::Vulkan)
        && let Err(error) = add_loader(&folder)
    {
        anstream::eprintln!(
            "{} no Vulkan loader, so that one has to be there: {error:#}",
            style::warning("without")
        );
    }
    let manifest = Manifest {
        device: device.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit().unwrap_or_else(|_| "unknown".to_owned()),
        suite: SUITE.to_owned(),
    };
    fs::write(
        folder.join(MANIFEST),
        serde_json::to_string_pretty(&manifest)?,
    )?;
    Ok(folder)
}

/// The commit of the clone, marked if tracked files differ from it. Documents and recorded rows do
/// not count.
pub(crate) fn commit() -> Result<String> {
    let git = |arguments: &[&str]| Cmd::new("git").args(arguments.iter().copied()).capture();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let code = [".", ":!docs", ":!benches/data"];
    let changes = git(&[
        &["status", "--porcelain", "--untracked-files=no", "--"],
        &code[..],
    ]
    .concat())?;
    let mark = if changes.is_empty() { "" } else { ", changed" };
    Ok(format!("{}{mark}", commit.trim()))
}

/// Copies a program without symbols, and checks that it runs elsewhere, with the libraries that go
/// along.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let strip = Cmd::new("strip").arg("-o").arg(to).arg(from);
    strip.run().context("binutils strip programs")?;
    let said = Cmd::new("ldd").arg("-v").arg(to).capture()?;
    let is_one_of = |library: &str, known: &[&str]| known.iter().any(|it| library.starts_with(it));
    let (carried, foreign): (Vec<_>, Vec<_>) = libraries(&said)
        .filter(|(library, _)| !is_one_of(library, &SYSTEM))
        .partition(|(library, _)| is_one_of(library, &CARRIED));
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let foreign: Vec<&str> = foreign.into_iter().map(|(library, _)| library).collect();
    ensure!(
        foreign.is_empty(),
        "{name} needs what a bare machine may not have: {}",
        foreign.join(", ")
    );
    check_glibc(&said, &to.to_string_lossy())?;
    for (library, path) in carried {
        check_glibc(&said, path)?;
        let folder = to.with_file_name(LIBRARIES);
        fs::create_dir_all(&folder)?;
        fs::copy(path, folder.join(library)).with_context(|| path.to_owned())?;
    }
    Ok(())
}

/// Checks that a program or library runs with the oldest C library that is promised.
fn check_glibc(said: &str, file: &str) -> Result<()> {
    if let Some((major, minor)) = glibc(said, file) {
        ensure!(
            (major, minor) <= GLIBC,
            "{file} needs glibc {major}.{minor}: {}.{} is the newest that is promised",
            GLIBC.0,
            GLIBC.1
        );
        anstream::eprintln!("{file} needs glibc {major}.{minor}");
    }
    Ok(())
}

/// Names and paths of libraries in ldd's words: `libz.so.1 => /lib/libz.so.1 (0x0)`.
fn libraries(said: &str) -> impl Iterator<Item = (&str, &str)> {
    let found = said.lines().take_while(|line| !line.is_empty());
    found.filter_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        Some((name, rest.split(" (").next()?))
    })
}

/// The newest version of the C library that a file needs. ldd says it below the file's name and a
/// colon: `libc.so.6 (GLIBC_2.34) => /lib/libc.so.6`.
fn glibc(said: &str, file: &str) -> Option<(u32, u32)> {
    let mut lines = said.lines().map(str::trim);
    lines.find(|line| line.strip_suffix(':') == Some(file))?;
    let of_file = lines.take_while(|line| !line.ends_with(':'));
    let numbers = of_file.filter_map(|line| {
        let (version, _) = line.split_once("(GLIBC_")?.1.split_once(')')?;
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    numbers.max()
}

fn add_cases(folder: &Path) -> Result<()> {
    let cases = conformance::export()?;
    Cmd::new("cp")
        .arg("-r")
        .arg(cases)
        .arg(folder.join(CASES))
        .run()
}

/// Puts libdevice into the folder below `CUDA_PATH` that the compiler searches.
fn add_libdevice(folder: &Path) -> Result<()> {
    let below = Path::new("nvvm/libdevice/libdevice.10.bc");
    let python = Python::with(&[LIBDEVICE])?;
    let library = python.site_packages()?.join("nvidia/cuda_nvcc").join(below);
    let to = folder.join(below);
    fs::create_dir_all(to.parent().unwrap_or(folder))?;
    fs::copy(&library, &to).with_context(|| format!("{} is not there", library.display()))?;
    Ok(())
}

/// Vulkan's loader, as the machine's linker finds it.
pub(crate) fn loader() -> Result<PathBuf> {
    let known = Cmd::new("/sbin/ldconfig").arg("-p").capture()?;
    loader_of(&known).context("no libvulkan.so.1 is installed")
}

/// The loader's path in the linker's list: `libvulkan.so.1 (libc6,x86-64) => /lib/libvulkan.so.1`.
fn loader_of(known: &str) -> Option<PathBuf> {
    let mut entries = known.lines().filter_map(|line| line.split_once(" => "));
    let found = entries.find(|(name, _)| name.trim().starts_with("libvulkan.so.1 "));
    found.map(|(_, path)| PathBuf::from(path.trim()))
}

fn add_loader(folder: &Path) -> Result<()> {
    let library = loader()?;
    let to = folder.join(LOADER);
    fs::create_dir_all(&to)?;
    fs::copy(&library, to.join("libvulkan.so.1")).with_context(|| library.display().to_string())?;
    Ok(())
}

/// With gzip, because a bare machine's tar can do that alone.
fn compress(folder: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        bail!("{} is no folder in another", folder.display());
    };
    let archive = parent.join(format!("{}.tar.gz", name.to_string_lossy()));
    Cmd::new("tar")
        .args(["--use-compress-program=gzip -9", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(parent)
        .arg(name)
        .run()?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_names_vulkans_loader() {
        let known = "2 libs found in cache `/etc/ld.so.cache'\n\
            \tlibvulkan_lvp.so (libc6,x86-64) => /lib/libvulkan_lvp.so\n\
            \tlibvulkan.so.1 (libc6,x86-64) => /lib/libvulkan.so.1\n";
        assert_eq!(loader_of(known), Some("/lib/libvulkan.so.1".into()));
        assert_eq!(loader_of("0 libs found\n"), None);
    }

    #[test]
    fn ldd_names_libraries_and_versions() {
        let said = "\tlinux-vdso.so.1 (0x0)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x0)\n\n\
            \tVersion information:\n\t/p/whole:\n\
            \t\tlibc.so.6 (GLIBC_2.9) => /lib/libc.so.6\n\
            \t\tlibm.so.6 (GLIBC_2.34) => /lib/libm.so.6\n\
            \t\tlibgcc_s.so.1 (GCC_3.0) => /lib/libgcc_s.so.1\n\
            \t/lib/libm.so.6:\n\t\tlibc.so.6 (GLIBC_2.36) => /lib/libc.so.6\n";
        let found: Vec<_> = libraries(said).collect();
        assert_eq!(found, [("libz.so.1", "/lib/x/libz.so.1")]);
        assert_eq!(glibc(said, "/p/whole"), Some((2, 34)));
        assert_eq!(glibc(said, "/lib/x/libz.so.1"), None);
    }
}
