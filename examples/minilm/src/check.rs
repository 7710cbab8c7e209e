//! Comparison with the reference embeddings.

use anyhow::{Context, Result};
use burn::tensor::Device;
use serde::Deserialize;

use crate::model::MiniLm;
use crate::tokens::{Batch, Tokenizer};
use crate::vectors::{cosine, read_rows};
use cubenorm_example_common::Norms;

/// Smallest accepted cosine between an embedding and its reference.
pub const SMALLEST_COSINE: f64 = 0.99999;

/// Sentences and embeddings, computed in f64 by `reference/make_fixture.py`.
const FIXTURE: &str = include_str!("../fixtures/embeddings.json");

/// One sentence of the fixture.
#[derive(Debug, Deserialize)]
pub struct Reference {
    /// The sentence.
    pub sentence: String,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Embedding of length one.
    pub embedding: Vec<f32>,
}

/// Agreement of one sentence with its reference.
#[derive(Debug)]
pub struct Agreement {
    /// The sentence.
    pub sentence: String,
    /// True if the token ids are equal.
    pub same_tokens: bool,
    /// Cosine between the embedding and its reference.
    pub cosine: f64,
}

impl Agreement {
    /// True if the sentence agrees. A NaN does not.
    pub fn passes(&self) -> bool {
        self.same_tokens && self.cosine >= SMALLEST_COSINE
    }
}

/// The reference embeddings.
pub fn references() -> Result<Vec<Reference>> {
    serde_json::from_str(FIXTURE).context("the fixture of reference embeddings is invalid")
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
