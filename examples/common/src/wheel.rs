//! Files from wheels, the packages of the Python package index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Prints a file of a wheel, decompressed if its name ends in `.gz`.
const PRINT_FILE: &str = "\
import gzip, sys, zipfile
wheel, name = sys.argv[1:]
content = zipfile.ZipFile(wheel).read(name)
if name.endswith('.gz'):
    content = gzip.decompress(content)
sys.stdout.buffer.write(content)
";

/// A package of the index with its version and hash.
#[derive(Debug, Clone, Copy)]
pub struct Wheel {
    /// Package and version: `name==1.2.3`.
    pub package: &'static str,
    /// Name of the downloaded file.
    pub file: &'static str,
    /// SHA-256 of the file.
    pub sha256: &'static str,
    /// Platform and Python version, if the package has several files. With it every machine
    /// downloads the same file.
    pub target: Option<Target>,
}

/// Target of a wheel, in pip's terms.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Platform, such as `manylinux2014_x86_64`.
    pub platform: &'static str,
    /// Python version, such as `3.11`.
    pub python: &'static str,
}

impl Wheel {
    /// Downloads the wheel into `folder` with pip, and verifies it.
    ///
    /// # Errors
    ///
    /// If the download fails, or the hash differs.
    pub fn download(&self, folder: &Path) -> Result<PathBuf> {
        let mut command = python();
        command
            .args(["-m", "pip", "download", "--quiet", "--no-deps"])
            .args(["--only-binary", ":all:", "--disable-pip-version-check"])
            .arg("--dest")
            .arg(folder);
        if let Some(target) = self.target {
            command.args(["--implementation", "cp", "--platform", target.platform]);
            command.args(["--python-version", target.python]);
        }
        let output = run(command.arg(self.package))?;
        let message = String::from_utf8_lossy(&output.stderr);
        if message.contains("No module named pip") {
            bail!("python3 has no pip; on Debian and Ubuntu: apt install python3-pip");
        }
        ensure!(
            output.status.success(),
            "pip could not download {}:\n{}",
            self.package,
            message.trim()
        );
        let path = folder.join(self.file);
        verify(&path, self.sha256)?;
        Ok(path)
    }
}

/// Unpacks a wheel, which is a ZIP archive, into `folder`.
///
/// # Errors
///
/// If it is not an archive, or the folder cannot be written.
pub fn unpack(wheel: &Path, folder: &Path) -> Result<()> {
    let mut command = python();
    command
        .args(["-m", "zipfile", "--extract"])
        .args([wheel, folder]);
    succeed(&mut command, || {
        format!("cannot unpack {}", wheel.display())
    })
    .map(drop)
}

/// Content of the file called `name` in a wheel, decompressed if the name ends in `.gz`.
///
/// # Errors
///
/// If it is not an archive, or has no such file.
pub fn read_file(wheel: &Path, name: &str) -> Result<Vec<u8>> {
    let mut command = python();
    command.args(["-c", PRINT_FILE]).arg(wheel).arg(name);
    let failed = || format!("cannot read {name} of {}", wheel.display());
    Ok(succeed(&mut command, failed)?.stdout)
}

/// The Python interpreter, which also downloads packages.
fn python() -> Command {
    Command::new("python3")
}

fn run(command: &mut Command) -> Result<Output> {
    command
        .output()
        .context("cannot run python3, which downloads the package")
}

fn succeed(command: &mut Command, failed: impl FnOnce() -> String) -> Result<Output> {
    let output = run(command)?;
    ensure!(
        output.status.success(),
        "{}:\n{}",
        failed(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

/// Checks a file against the SHA-256 that it should have.
fn verify(path: &Path, expected: &str) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = Sha256::digest(bytes);
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(
        found == expected,
        "{} is not the expected file: its SHA-256 is {found}, not {expected}",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SHA256_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn files_are_verified_by_hash() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abc").unwrap();
        verify(file.path(), SHA256_OF_ABC).unwrap();

        file.write_all(b"d").unwrap();
        let error = verify(file.path(), SHA256_OF_ABC).unwrap_err().to_string();
        assert!(error.contains("is not the expected file"), "{error}");
    }

    #[test]
    fn invalid_archive_is_named_in_the_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = read_file(file.path(), "a/b").unwrap_err().to_string();
        assert!(error.contains("cannot read a/b of "), "{error}");
    }
}
