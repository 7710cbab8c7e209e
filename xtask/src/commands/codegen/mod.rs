//! `cargo xtask codegen`: the source that CubeCL generates for every kernel and target, checked.

mod checker;
mod program;
mod ptxas;
mod report;
mod tools;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;

use self::{
    checker::check,
    program::{Outcome, Source, Target},
    tools::Tools,
};
use crate::{
    cargo,
    exec::{Cmd, workspace},
    llvm::{self, Llvm},
    style,
};

/// The package that has CubeCL's compilers, and the feature that has them in it.
const PACKAGE: &str = "cubenorm-offline";
const FEATURE: &str = "compilers";
/// Default folder of the sources.
const FOLDER: &str = "target/codegen";

/// Write the source that CubeCL generates for every kernel. No device is needed.
///
/// Every kernel, strategy and data type, forward and backward, as plans choose them for devices of
/// each kind.
///
/// With `--check`, each source goes through the compiler or validator of its target. PTX: ptxas.
/// CUDA C++: NVRTC. Both are in NVIDIA's Python packages, installed into target/python. HIP C++:
/// hipRTC. WGSL: naga. SPIR-V: spirv-val. MSL: only its structure is checked. Machine code for the
/// CPU: LLVM writes it.
///
/// A checker that is missing is printed as skipped. In CI (`CI` is set) that is a failure, except
/// for HIP's.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Targets to write [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub target: Vec<Target>,
    /// Kernels to write, by the names of their functions [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// Folder to write to [default: target/codegen]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Check what has been written
    #[arg(long)]
    pub check: bool,
}

impl Args {
    fn targets(&self) -> Vec<Target> {
        match self.target.is_empty() {
            true => Target::value_variants().to_vec(),
            false => self.target.clone(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        llvm::find()? != Llvm::Missing,
        "CubeCL's compilers need LLVM, whose download is out of reach"
    );
    let mut targets = args.targets();
    let tools = Tools::find(&targets, args.check);
    for (target, why) in &tools.missing {
        let consequence = match tools.generates(*target) {
            true => "not checked",
            false => "left out",
        };
        anstream::eprintln!(
            "{} {target}: {consequence}: {why}",
            style::warning("skipped")
        );
    }
    targets.retain(|target| tools.generates(*target));
    ensure!(!targets.is_empty(), "nothing is left to write");

    let out = match &args.out {
        Some(out) => env::current_dir()?.join(out),
        None => workspace().join(FOLDER),
    };
    for target in &targets {
        clear(&out.join(target.name()), args.out.is_none())?;
    }
    let mut sources = generate(args, &targets, &tools, &out)?;
    if args.check {
        check(&mut sources, &tools, &out)?;
    }
    let failed = report::print(&sources, &out, &tools);
    let required = env::var_os("CI").is_some() && args.check;
    let missing: Vec<&str> = tools
        .missing
        .iter()
        .filter(|(target, _)| required && target.must_be_checked())
        .map(|(target, _)| target.name())
        .collect();
    if !missing.is_empty() {
        bail!("CI is set, and nothing checked {}", missing.join(", "));
    }
    ensure!(failed == 0, "{failed} of {} sources failed", sources.len());
    Ok(())
}

/// The tests of the package, with the compilers.
pub(crate) fn test() -> Cmd {
    cargo::on("test", &[PACKAGE], FEATURE)
}

fn generate(args: &Args, targets: &[Target], tools: &Tools, out: &Path) -> Result<Vec<Source>> {
    let program = cargo::Build::binaries(&[PACKAGE], FEATURE)?.program(program::NAME)?;
    let names: Vec<&str> = targets.iter().map(|target| target.name()).collect();
    let mut command = Cmd::new(program.to_string_lossy())
        .args(["--target", &names.join(",")])
        .arg("--out")
        .arg(out);
    if !args.kernel.is_empty() {
        command = command.args(["--kernel", &args.kernel.join(",")]);
    }
    if args.check {
        command = command.arg("--check");
    }
    if let Some(toolkit) = tools.toolkit() {
        // LLVM links the functions in here that NVIDIA's GPUs have no instruction for.
        command = command.env("CUDA_PATH", toolkit);
    }
    program::run(&command)
}

/// File in each folder that this command makes.
const MARK: &str = ".cubenorm-codegen";

/// Removes the files of an earlier run, so that the folder has this run's only. A folder that may
/// hold other files stays as it is, unless it is known to be ours.
fn clear(folder: &Path, is_ours: bool) -> Result<()> {
    let cannot = || format!("{} could not be emptied", folder.display());
    if folder.is_dir() {
        let mut files = fs::read_dir(folder).with_context(cannot)?;
        ensure!(
            is_ours || folder.join(MARK).is_file() || files.next().is_none(),
            "{} holds files that this command did not write",
            folder.display()
        );
        fs::remove_dir_all(folder).with_context(cannot)?;
    }
    fs::create_dir_all(folder).with_context(cannot)?;
    fs::write(folder.join(MARK), "").with_context(cannot)
}

/// Bytes of a unit's stack that do not count: four registers. RMS norm in rows of 4,096 bf16 spills
/// four, and an H200 runs it at 96 to 99 % of a copy.
const LITTLE: u32 = 16;

/// True if the benchmark measures a kernel that spills more than a little, which is slow: a
/// failure.
fn is_slow(source: &Source) -> bool {
    source.hot
        && source
            .resources
            .is_some_and(|resources| resources.stack.max(resources.spill_stores) > LITTLE)
}

/// True if something is wrong with a source.
fn has_failed(source: &Source) -> bool {
    matches!(source.outcome, Outcome::Wrong(_) | Outcome::Refused(_)) || is_slow(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_folder_is_not_emptied() {
        let folder = workspace().join(format!("target/clear-test-{}", std::process::id()));
        let (ours, theirs) = (folder.join("kernel.ptx"), folder.join("notes.txt"));
        clear(&folder, false).unwrap();
        fs::write(&ours, "").unwrap();
        clear(&folder, false).unwrap();
        assert!(!ours.exists());

        fs::write(&theirs, "").unwrap();
        fs::remove_file(folder.join(MARK)).unwrap();
        let error = clear(&folder, false).unwrap_err().to_string();
        assert!(error.contains("did not write"), "{error}");
        assert!(theirs.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
