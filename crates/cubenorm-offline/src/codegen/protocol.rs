//! What is said to `cargo xtask codegen`, a line of JSON each.

use cubenorm_core::{DType, Strategy};
use cubenorm_offline::Language;
use serde::Serialize;

/// A line.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// How many sources there will be.
    Planned {
        /// So many.
        sources: usize,
    },
    /// One of them.
    Source(Box<Source>),
}

/// A source, and what came of it.
#[derive(Serialize)]
pub struct Source {
    /// What it is written in.
    pub target: Language,
    /// What it is written for, where that is not all.
    pub variant: Option<String>,
    /// The kernel.
    pub kernel: &'static str,
    /// The strategy of its plan.
    pub strategy: Option<Strategy>,
    /// The dtype of its input.
    pub dtype: DType,
    /// What it is launched for.
    pub case: String,
    /// What was decided of its plan.
    pub knobs: String,
    /// Whether it is to be fast.
    pub hot: bool,
    /// Where it lies, in the folder; of a kernel that did not compile, what was to be compiled.
    pub file: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a source.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was generated.
    Generated,
    /// It was generated and is right, as far as that was checked.
    Checked,
    /// It was generated and is wrong.
    Wrong(String),
    /// It was not generated.
    Refused(String),
}
