//! The text and its windows.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cubenorm_example_common::training::Random;
use cubenorm_example_common::workspace;
use walkdir::WalkDir;

/// Folders of the workspace with the default training text.
const FOLDERS: [&str; 2] = ["crates", "kernels"];
/// The last `1 / TEST_SHARE` of the text is test data.
const TEST_SHARE: usize = 10;

/// Training and test text.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Training data.
    pub training: Vec<u8>,
    /// Test data.
    pub test: Vec<u8>,
}

/// Windows of text on a device.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[windows, length]`.
    pub bytes: Tensor<2, Int>,
    /// The next byte at each position, `[windows * length]`.
    pub next: Tensor<1, Int>,
}

impl Text {
    /// Reads the text at this path, or the project's own.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is too short for a window of `length`.
    pub fn read(path: Option<&Path>, length: usize) -> Result<Self> {
        let bytes = match path {
            Some(path) => read_file(path)?,
            None => own_source()?,
        };
        Self::split(bytes, length)
    }

    fn split(mut bytes: Vec<u8>, length: usize) -> Result<Self> {
        let test = bytes.split_off(bytes.len() - bytes.len() / TEST_SHARE);
        // A window also needs the byte after it.
        ensure!(
            test.len() > length && bytes.len() > length,
            "the text is too short: its last tenth must be longer than {length} bytes"
        );
        Ok(Self {
            training: bytes,
            test,
        })
    }
}

impl Batch {
    /// Windows at random positions of the text.
    pub fn random(
        text: &[u8],
        [windows, length]: [usize; 2],
        random: &mut Random,
        device: &Device,
    ) -> Self {
        let starts = (0..windows).map(|_| random.below(text.len() - length));
        Self::at(text, starts, length, device)
    }

    /// Windows at evenly spaced positions of the text.
    pub fn spread(text: &[u8], [windows, length]: [usize; 2], device: &Device) -> Self {
        let places = text.len() - length;
        let starts = (0..windows).map(|window| window * places / windows);
        Self::at(text, starts, length, device)
    }

    fn at(
        text: &[u8],
        starts: impl Iterator<Item = usize>,
        length: usize,
        device: &Device,
    ) -> Self {
        let (mut bytes, mut next) = (Vec::new(), Vec::new());
        for start in starts {
            let window = &text[start..=start + length];
            bytes.extend(window[..length].iter().copied().map(i32::from));
            next.extend(window[1..].iter().copied().map(i32::from));
        }
        let count = bytes.len();
        let shape = [count / length, length];
        Self {
            bytes: Tensor::from_data(TensorData::new(bytes, shape), device),
            next: Tensor::from_data(TensorData::new(next, [count]), device),
        }
    }
}

/// The project's source text: its Rust files, ordered by path.
fn own_source() -> Result<Vec<u8>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        for entry in WalkDir::new(workspace().join(folder)) {
            let path = entry.context("cannot list the source text")?.into_path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let mut text = Vec::new();
    for path in paths {
        text.extend(read_file(&path)?);
    }
    Ok(text)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_tenth_is_test_data() {
        let text = Text::split((0..100).collect(), 9).unwrap();
        assert_eq!(text.training, (0..90).collect::<Vec<u8>>());
        assert_eq!(text.test, (90..100).collect::<Vec<u8>>());
        assert!(Text::split((0..100).collect(), 10).is_err());
        assert!(Text::split(Vec::new(), 0).is_err());
    }

    #[test]
    fn own_source_is_long_enough() {
        let text = Text::read(None, 64).unwrap();
        assert!(text.training.len() > 100_000, "{}", text.training.len());
    }

    #[test]
    #[cfg(feature = "flex")]
    fn windows_are_followed_by_their_next_bytes() {
        let device = Device::flex();
        let text: Vec<u8> = (0..10).collect();
        let batch = Batch::spread(&text, [2, 4], &device);
        let bytes = batch.bytes.into_data().try_to_vec_as::<i32>().unwrap();
        let next = batch.next.into_data().try_to_vec_as::<i32>().unwrap();
        assert_eq!(bytes, [0, 1, 2, 3, 3, 4, 5, 6]);
        assert_eq!(next, [1, 2, 3, 4, 4, 5, 6, 7]);

        // The shortest text with a window has only one position for it.
        let batch = Batch::random(&text, [3, 9], &mut Random::new(1), &device);
        let next = batch.next.into_data().try_to_vec_as::<i32>().unwrap();
        assert_eq!(next[..9], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
