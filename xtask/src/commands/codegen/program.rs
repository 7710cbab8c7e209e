//! The program that has CubeCL's compilers. Its `protocol` is the other side.

use std::io::BufRead;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use strum::{Display, IntoStaticStr};

use super::ptxas::Resources;
use crate::{commands::bench::progress, exec::Cmd};

/// Name of the program.
pub(super) const NAME: &str = "cubenorm-codegen";

/// A target that kernels are compiled to.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    ValueEnum,
    Deserialize,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Target {
    /// Assembly for NVIDIA's GPUs
    Ptx,
    /// CUDA C++
    Cuda,
    /// HIP C++
    Hip,
    /// Metal's language
    Msl,
    /// WebGPU's language
    Wgsl,
    /// Vulkan's language
    Spirv,
    /// Machine code for this processor
    Llvm,
}

impl Target {
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if CI must have the checker. The checker of HIP is old, if there is one at all.
    pub fn must_be_checked(self) -> bool {
        self != Self::Hip
    }
}

/// A source, and what came of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Source {
    pub target: Target,
    /// Architecture that it is written for, such as `sm_90`.
    pub variant: Option<String>,
    pub kernel: String,
    pub strategy: Option<String>,
    /// The problem that it is launched for.
    pub case: String,
    /// The knobs of its plan.
    pub knobs: String,
    /// True if the benchmark measures it.
    pub hot: bool,
    /// Within the folder of all.
    pub file: String,
    pub outcome: Outcome,
    /// Registers and stack, if the checker tells them.
    #[serde(skip)]
    pub resources: Option<Resources>,
}

/// Result of a source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Generated, not checked.
    Generated,
    /// It is right.
    Checked,
    /// It was generated, and what should take it does not.
    Wrong(String),
    /// CubeCL did not generate it.
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Planned { sources: u64 },
    Source(Box<Source>),
}

/// Runs the program and collects its answers.
pub(super) fn run(command: &Cmd) -> Result<Vec<Source>> {
    command.announce();
    let (mut child, _, stdout) = command.talk()?;
    let bar = progress(0);
    bar.set_message("generated");
    let mut sources = Vec::new();
    let mut planned = 0;
    for line in stdout.lines() {
        match event(&line?)? {
            Event::Planned { sources } => {
                planned = sources;
                bar.set_length(sources);
            }
            Event::Source(source) => {
                sources.push(*source);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let status = child.wait()?;
    if !status.success() {
        bail!("{NAME} failed");
    }
    ensure!(
        sources.len() as u64 == planned,
        "{NAME} wrote {} sources of {planned}",
        sources.len()
    );
    // Results come in the order in which threads finish.
    sources.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(sources)
}

fn event(line: &str) -> Result<Event> {
    serde_json::from_str(line).with_context(|| format!("{NAME} said something else: {line}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A source of a target, as its program would tell it.
    pub(crate) fn source(target: Target, kernel: &str, outcome: Outcome) -> Source {
        Source {
            target,
            variant: None,
            kernel: kernel.into(),
            strategy: Some("plane".into()),
            case: "layer_norm [2, 3]".into(),
            knobs: "analytic".into(),
            hot: false,
            file: format!("{target}/{kernel}"),
            outcome,
            resources: None,
        }
    }

    #[test]
    fn a_source_reads_without_optional_fields() {
        let line = |variant: &str, outcome: &str| {
            format!(
                r#"{{"source":{{"target":"ptx","variant":{variant},"kernel":"fold","strategy":null,
                "dtype":"f32","case":"c","knobs":"analytic","hot":true,"file":"f","outcome":{outcome}}}}}"#
            )
        };
        let parsed = |line: &str| match event(line).unwrap() {
            Event::Source(source) => *source,
            Event::Planned { .. } => unreachable!(),
        };
        let generated = parsed(&line("null", r#""generated""#));
        assert_eq!(generated.outcome, Outcome::Generated);
        assert_eq!((generated.variant, generated.hot), (None, true));
        let refused = parsed(&line(r#""sm_90""#, r#"{"refused":"why"}"#));
        assert_eq!(refused.outcome, Outcome::Refused("why".into()));
        assert!(event("noise").is_err());
    }
}
