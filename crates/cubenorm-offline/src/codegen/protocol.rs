//! The messages to `cargo xtask codegen`, one line of JSON each.

use cubenorm_core::{DType, Strategy};
use cubenorm_offline::Language;
use serde::Serialize;

/// A line.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The number of sources to generate.
    Planned {
        /// Number of sources.
        sources: usize,
    },
    /// A finished source.
    Source(Box<Source>),
}

/// A source and its outcome.
#[derive(Serialize)]
pub struct Source {
    /// The language.
    pub target: Language,
    /// The device or version, if the language has several.
    pub variant: Option<String>,
    /// The kernel.
    pub kernel: &'static str,
    /// The strategy of its plan.
    pub strategy: Option<Strategy>,
    /// The dtype of its input.
    pub dtype: DType,
    /// The case that launches it.
    pub case: String,
    /// The knobs of its plan.
    pub knobs: String,
    /// True if the benchmark measures it.
    pub hot: bool,
    /// Path in the output folder. If the kernel did not compile, the file has its representation.
    pub file: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a source.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Generated.
    Generated,
    /// Generated and valid, as far as checked.
    Checked,
    /// Generated but invalid, with the reason.
    Wrong(String),
    /// Not generated, with the reason.
    Refused(String),
}
