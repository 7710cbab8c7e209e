//! Fetches the digits from the Python package index.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::target_folder;
use cubenorm_example_common::wheel::{Target, Wheel, read_file};

/// Package with the digits.
const WHEEL: Wheel = Wheel {
    package: "scikit-learn==1.7.2",
    file: "scikit_learn-1.7.2-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
    target: Some(Target {
        platform: "manylinux2014_x86_64",
        python: "3.11",
    }),
};

/// File in the wheel.
const DIGITS: &str = "sklearn/datasets/data/digits.csv.gz";

/// Default folder of the digits: `target/digits` of the workspace.
pub fn default_folder() -> PathBuf {
    target_folder("digits")
}

/// The file of the digits in `folder`, downloaded if it is missing.
///
/// # Errors
///
/// If the download fails, or the hash differs.
pub fn fetch(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("digits.csv");
    if path.is_file() {
        return Ok(path);
    }

    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let writing = || format!("cannot write to the folder {}", folder.display());
    // Downloads go to a temporary folder first, so that neither an interruption nor a concurrent
    // process leaves an incomplete file behind.
    let staging = tempfile::tempdir_in(folder).with_context(writing)?;
    let _progress = Progress::start(format!(
        "Downloading {} (10 MB) from the Python package index",
        WHEEL.package
    ));
    let wheel = WHEEL.download(staging.path())?;
    let mut file = tempfile::NamedTempFile::new_in(staging.path()).with_context(writing)?;
    file.write_all(&read_file(&wheel, DIGITS)?)
        .with_context(writing)?;
    file.persist(&path).with_context(writing)?;
    Ok(path)
}
