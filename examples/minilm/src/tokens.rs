//! Tokenization into padded batches of token ids.

use std::path::Path;

use anyhow::{Result, anyhow};
use burn::tensor::{Device, Int, Tensor, TensorData};
use tokenizers::Tokenizer as HfTokenizer;

/// Maximum tokens of a sentence in training; longer sentences are truncated. The tokenizer's file
/// says 128, but the model card and sentence-transformers say 256.
const MAX_TOKENS: usize = 256;

/// Padding token. Its value is irrelevant, since the mask hides it.
const PADDING_ID: u32 = 0;

/// Splits sentences into the model's tokens.
pub struct Tokenizer(HfTokenizer);

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn from_file(path: &Path) -> Result<Self> {
        let context = |error| anyhow!("cannot load the tokenizer {}: {error}", path.display());
        let mut tokenizer = HfTokenizer::from_file(path).map_err(context)?;
        tokenizer.with_padding(None);
        let truncation = tokenizers::TruncationParams {
            max_length: MAX_TOKENS,
            ..Default::default()
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(context)?;
        Ok(Self(tokenizer))
    }

    /// Token ids of each sentence, with start and end tokens.
    pub fn encode<S: AsRef<str>>(&self, sentences: &[S]) -> Result<Vec<Vec<u32>>> {
        sentences
            .iter()
            .map(|sentence| {
                let sentence = sentence.as_ref();
                self.0
                    .encode_fast(sentence, true)
                    .map(|encoding| encoding.get_ids().to_vec())
                    .map_err(|error| anyhow!("cannot tokenize {sentence:?}: {error}"))
            })
            .collect()
    }
}

/// A batch of sentences on a device, padded to the longest.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Token ids, `[sentences, tokens]`.
    pub ids: Tensor<2, Int>,
    /// One for a token and zero for padding, `[sentences, tokens]`.
    pub mask: Tensor<2>,
}

impl Batch {
    /// Pads the sentences to the longest one and moves them to the device.
    pub fn new(sentences: &[Vec<u32>], device: &Device) -> Self {
        let (ids, mask, shape) = pad(sentences);
        Self {
            ids: Tensor::from_data(TensorData::new(ids, shape), device),
            mask: Tensor::from_data(TensorData::new(mask, shape), device),
        }
    }

    /// `[sentences, tokens]`.
    pub fn shape(&self) -> [usize; 2] {
        self.ids.dims()
    }
}

/// Row-major ids and mask of a batch, and their shape `[sentences, tokens]`.
fn pad(sentences: &[Vec<u32>]) -> (Vec<i32>, Vec<f32>, [usize; 2]) {
    let tokens = sentences.iter().map(Vec::len).max().unwrap_or(0);
    let mut ids = Vec::with_capacity(sentences.len() * tokens);
    let mut mask = Vec::with_capacity(sentences.len() * tokens);
    for sentence in sentences {
        let padding = tokens - sentence.len();
        let padded = sentence
            .iter()
            .copied()
            .chain(std::iter::repeat_n(PADDING_ID, padding));
        ids.extend(padded.map(|id| id as i32));
        mask.extend(std::iter::repeat_n(1.0, sentence.len()));
        mask.extend(std::iter::repeat_n(0.0, padding));
    }
    (ids, mask, [sentences.len(), tokens])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_sentences_are_padded_to_the_longest() {
        let (ids, mask, shape) = pad(&[vec![7, 8, 9], vec![5]]);
        assert_eq!(shape, [2, 3]);
        assert_eq!(ids, [7, 8, 9, 5, 0, 0]);
        assert_eq!(mask, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn empty_batches_are_valid() {
        assert_eq!(pad(&[]).2, [0, 0]);
    }
}
