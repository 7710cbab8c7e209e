//! The comparison with the reference embeddings.

use anyhow::{Context, Result};
use burn::tensor::Device;
use serde::Deserialize;

use crate::model::MiniLm;
use crate::tokens::{Batch, Tokenizer};
use crate::vectors::{cosine, read_rows};
use cubenorm_example_common::Norms;

/// The smallest cosine between an embedding and its reference that passes.
pub const SMALLEST_COSINE: f64 = 0.99999;

/// Sentences with their embeddings, computed in float64 by `reference/make_fixture.py`.
const FIXTURE: &str = include_str!("../fixtures/embeddings.json");

/// One sentence of the fixture.
#[derive(Debug, Deserialize)]
pub struct Reference {
    /// The sentence.
    pub sentence: String,
    /// The ids of its tokens.
    pub tokens: Vec<u32>,
    /// Its embedding, of length one.
    pub embedding: Vec<f32>,
}

/// How close one sentence came to its reference.
#[derive(Debug)]
pub struct Agreement {
    /// The sentence.
    pub sentence: String,
    /// Whether it was split into the same tokens.
    pub same_tokens: bool,
    /// The cosine between its embedding and the reference.
    pub cosine: f64,
}

impl Agreement {
    /// Whether the sentence is close enough. A NaN is not.
    pub fn passes(&self) -> bool {
        self.same_tokens && self.cosine >= SMALLEST_COSINE
    }
}

/// The reference embeddings.
pub fn references() -> Result<Vec<Reference>> {
    serde_json::from_str(FIXTURE).context("the fixture of reference embeddings is damaged")
}

/// Embeds the sentences of the fixture, all in one padded batch, and compares.
pub fn check(
    model: &MiniLm,
    tokenizer: &Tokenizer,
    norms: Norms,
    device: &Device,
) -> Result<Vec<Agreement>> {
    let references = references()?;
    let sentences: Vec<_> = references.iter().map(|entry| &entry.sentence).collect();
    let tokens = tokenizer.encode(&sentences)?;
    let embeddings = read_rows(model.embed(&Batch::new(&tokens, device), norms))?;

    let agreements = references.into_iter().zip(tokens).zip(embeddings).map(
        |((reference, tokens), embedding)| Agreement {
            sentence: reference.sentence,
            same_tokens: tokens == reference.tokens,
            cosine: cosine(&embedding, &reference.embedding),
        },
    );
    Ok(agreements.collect())
}
