//! `cargo xtask package`: the checks as one archive, for a machine with a GPU and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::conformance;
use crate::{
    cargo::{Build, locked, on},
    device::Device,
    exec::{Cmd, on_path, workspace},
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
pub struct Args {
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
pub const PROGRAM: &str = "gpu-check";
pub const CASES: &str = "cases";
pub const MANIFEST: &str = "package.json";
pub const LIBRARIES: &str = "lib";

/// A package's description of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The device that it checks, which is the feature that it was built with.
    pub device: String,
    /// The version of the project.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The file of the suite.
    pub suite: String,
    /// CubeCL's version.
    #[serde(default)]
    pub cubecl: String,
}

pub fn run(args: &Args) -> Result<()> {
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
pub fn assemble(device: Device, out: &Path) -> Result<PathBuf> {
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
    let manifest = Manifest {
        device: device.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit().unwrap_or_else(|_| "unknown".to_owned()),
        suite: SUITE.to_owned(),
        cubecl: locked("cubecl")?,
    };
    fs::write(
        folder.join(MANIFEST),
        serde_json::to_string_pretty(&manifest)?,
    )?;
    Ok(folder)
}

/// The commit of the clone, marked if tracked files differ from it. Documents and recorded rows do
/// not count.
pub fn commit() -> Result<String> {
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
    if !on_path("readelf") {
        bail!("binutils' readelf says what a program needs");
    }
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let dynamic = read("--dynamic", to)?;
    let is_one_of = |library: &str, known: &[&str]| known.iter().any(|it| library.starts_with(it));
    let (carried, foreign): (Vec<String>, Vec<String>) = needed(&dynamic)
        .filter(|library| !is_one_of(library, &SYSTEM))
        .partition(|library| is_one_of(library, &CARRIED));
    ensure!(
        foreign.is_empty(),
        "{name} needs what a bare machine may not have: {}",
        foreign.join(", ")
    );
    check_glibc(to)?;
    if carried.is_empty() {
        return Ok(());
    }
    let folder = to.with_file_name(LIBRARIES);
    fs::create_dir_all(&folder)?;
    let found = Cmd::new("ldd").arg(to).capture()?;
    for library in carried {
        let path = located(&found, &library);
        let path = path.with_context(|| format!("{library} is nowhere"))?;
        let copy = folder.join(&library);
        fs::copy(path, &copy).with_context(|| path.to_owned())?;
        check_glibc(&copy)?;
    }
    Ok(())
}

fn read(what: &str, file: &Path) -> Result<String> {
    Cmd::new("readelf")
        .args([what, "--wide"])
        .arg(file)
        .capture()
}

/// Checks that a program or library runs with the oldest C library that is promised.
fn check_glibc(file: &Path) -> Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if let Some((major, minor)) = glibc(&read("--version-info", file)?) {
        ensure!(
            (major, minor) <= GLIBC,
            "{name} needs glibc {major}.{minor}: {}.{} is the newest that is promised",
            GLIBC.0,
            GLIBC.1
        );
        anstream::eprintln!("{name} needs glibc {major}.{minor}");
    }
    Ok(())
}

/// The path that ldd has found for a library: `libz.so.1 => /lib/libz.so.1 (0x0)`.
fn located<'a>(found: &'a str, library: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        let (name, rest) = line.trim().split_once(" => ")?;
        (name == library).then(|| rest.split(" (").next()).flatten()
    };
    found.lines().find_map(of)
}

/// The libraries in readelf's words: `... (NEEDED)  Shared library: [libc.so.6]`.
fn needed(dynamic: &str) -> impl Iterator<Item = String> {
    dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(library, _)| library.to_owned())
}

/// The newest version of the C library in readelf's words: `... Name: GLIBC_2.34  Flags: none`.
fn glibc(versions: &str) -> Option<(u32, u32)> {
    let names = versions.split_whitespace();
    let numbers = names.filter_map(|word| word.strip_prefix("GLIBC_")?.split_once('.'));
    numbers
        .filter_map(|(major, minor)| {
            let minor = minor.split('.').next()?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .max()
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
    fn libraries_are_read_from_what_readelf_says() {
        let text = "  Tag        Type                         Name/Value\n \
             0x0000000000000001 (NEEDED)             Shared library: [libxml2.so.2]\n \
             0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
             0x000000000000000c (INIT)               0x1000\n";
        let libraries: Vec<_> = needed(text).collect();
        assert_eq!(libraries, ["libxml2.so.2", "libc.so.6"]);
    }

    #[test]
    fn a_library_is_where_ldd_found_it() {
        let text = "\tlinux-vdso.so.1 (0x00007f2f)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x00007f2e)\n";
        assert_eq!(located(text, "libz.so.1"), Some("/lib/x/libz.so.1"));
        assert_eq!(located(text, "libzstd.so.1"), None);
    }

    #[test]
    fn glibc_versions_compare_as_numbers() {
        let text = "  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4\n  \
            0x0020:   Name: GLIBC_2.34  Flags: none  Version: 3\n  \
            0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 2\n  \
            0x0040:   Name: GCC_3.0  Flags: none  Version: 5\n";
        assert_eq!(glibc(text), Some((2, 34)));
        assert!((2, 34) <= GLIBC);
        assert_eq!(glibc("Name: GCC_3.0"), None);
    }
}
