//! The network's files: fetches the ONNX file, and has burn-onnx generate code and weights.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::target_folder;
use cubenorm_example_common::wheel::{Wheel, read_file};

/// Package with the network, and its file in it.
const WHEEL: Wheel = Wheel {
    package: "rapidocr-onnxruntime==1.4.4",
    file: "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    sha256: "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    target: None,
};
const ONNX_IN_WHEEL: &str = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx";

/// The version of burn-onnx that goes with Burn's.
const BURN_ONNX: &str = "0.22.0";

/// Names of the files.
const ONNX: &str = "classifier.onnx";
const CODE: &str = "classifier.rs";
const WEIGHTS: &str = "classifier.bpk";

/// The code that this program was compiled with.
const COMPILED: &str = include_str!("classifier.rs");

/// The file of the weights in `folder`, which is generated if it is missing.
///
/// # Errors
///
/// If a download or the import fails, or the generated code is not the compiled one.
pub(crate) fn weights(folder: &Path) -> Result<PathBuf> {
    let weights = folder.join(WEIGHTS);
    if weights.is_file() {
        return Ok(weights);
    }
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // Neither an interruption nor a concurrent process leaves an incomplete file behind.
    let staging = tempfile::tempdir_in(folder)
        .with_context(|| format!("cannot write to the folder {}", folder.display()))?;
    let progress = Progress::start(format!(
        "Downloading {} (15 MB) from the Python package index",
        WHEEL.package
    ));
    let wheel = WHEEL.download(staging.path())?;
    fs::write(staging.path().join(ONNX), read_file(&wheel, ONNX_IN_WHEEL)?)?;
    drop(progress);

    generate(&importer()?, staging.path())?;
    let generated =
        fs::read_to_string(staging.path().join(CODE)).context("burn-onnx wrote no code")?;
    ensure!(
        generated == COMPILED,
        "burn-onnx {BURN_ONNX} generated other code than this program was compiled with: copy {} to src/{CODE}",
        staging.keep().join(CODE).display()
    );
    fs::rename(staging.path().join(WEIGHTS), &weights)
        .with_context(|| format!("cannot write {}", weights.display()))?;
    Ok(weights)
}

/// The program `onnx2burn` of burn-onnx, which is built if it is missing.
fn importer() -> Result<PathBuf> {
    let root = target_folder("tools").join(format!("burn-onnx-{BURN_ONNX}"));
    let program = root
        .join("bin")
        .join(format!("onnx2burn{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    let _progress = Progress::start(format!(
        "Building burn-onnx {BURN_ONNX}, which takes minutes"
    ));
    let mut command = Command::new("cargo");
    command
        .args(["install", "burn-onnx", "--locked", "--version", BURN_ONNX, "--root"])
        .arg(&root)
        // The project's own build stays as it is.
        .arg("--target-dir")
        .arg(root.join("build"));
    succeed(&mut command)?;
    fs::remove_dir_all(root.join("build")).ok();
    Ok(program)
}

/// Generates code and weights in `folder`.
fn generate(importer: &Path, folder: &Path) -> Result<()> {
    let _progress = Progress::start("Importing the network".to_owned());
    let mut command = Command::new(importer);
    // The code names the file as it is given here.
    command
        .current_dir(folder)
        .args(["--no-development", ONNX, "."]);
    succeed(&mut command)
}

fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} failed:\n{}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
