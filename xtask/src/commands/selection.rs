//! Which problems a verb takes, and on which devices.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    device::{Device, present},
    exec::Cmd,
};

/// What is run; the benchmark's catalogue knows what the words mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub op: String,
    pub shape: Vec<usize>,
    #[serde(default = "contiguous")]
    pub layout: String,
    #[serde(default = "f32")]
    pub dtype: String,
    #[serde(default = "forward")]
    pub pass: String,
}

fn contiguous() -> String {
    "contiguous".into()
}

fn f32() -> String {
    "f32".into()
}

fn forward() -> String {
    "forward".into()
}

impl Problem {
    /// `2048x4096`, as a shape is written in commands.
    pub fn sizes(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        sizes.join("x")
    }

    /// Its sizes, and the layout where that is not the usual one.
    pub fn tensor(&self) -> String {
        match self.layout == contiguous() {
            true => self.sizes(),
            false => format!("{} {}", self.sizes(), self.layout),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.op,
            self.tensor(),
            self.dtype,
            self.pass
        )
    }
}

/// The arguments of verbs that take problems.
#[derive(clap::Args)]
pub struct Selection {
    /// Which shapes: quick, full, transformer, vision, tiny, odd
    #[arg(long, value_name = "NAME", default_value = "full")]
    suite: String,
    /// The problems of FILE instead: a JSON array of {"op": ..., "shape": [...], "layout": ..., "dtype": ...,
    /// "pass": ...}
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    shapes: Option<PathBuf>,
    /// Devices to run on [default: those of cpu and wgpu that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Only these operators: layer_norm, rms_norm, batch_norm, group_norm, instance_norm
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    op: Vec<String>,
    /// Only these shapes, as 2048x4096; one that is not in the suite is added to it
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = parse_shape)]
    shape: Vec<Shape>,
    /// Only these layouts: contiguous, channels_last; all shapes take those that are named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    layout: Vec<String>,
    /// Only these types: f32, f16
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    dtype: Vec<String>,
    /// Only these passes: forward, backward, full (both); all shapes take those that are named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pass: Vec<String>,
}

/// The sizes of a tensor; clap would take a bare `Vec` for a list of values.
#[derive(Clone, Debug, PartialEq)]
struct Shape(Vec<usize>);

fn parse_shape(text: &str) -> Result<Shape> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    Ok(Shape(sizes.with_context(|| {
        format!("`{text}` is no shape such as 2048x4096")
    })?))
}

impl Selection {
    /// The devices that are named, or those of software that this machine has.
    pub fn devices(&self) -> Vec<Device> {
        if !self.device.is_empty() {
            return self.device.clone();
        }
        present(&[Device::Cpu, Device::Wgpu])
    }

    /// Whether nothing is left out of the suite that holds all others.
    pub fn is_full(&self) -> bool {
        let is_whole = self.shapes.is_none() && self.op.is_empty() && self.shape.is_empty();
        is_whole && self.suite == "full"
    }

    /// The suite as the benchmark program's catalogue has it, or the file, filtered and completed as
    /// asked.
    pub fn problems(&self, program: &Path, suite: Option<&str>) -> Result<Vec<Problem>> {
        let (text, source) = match &self.shapes {
            Some(file) => (
                fs::read_to_string(file).with_context(|| format!("{} not read", file.display()))?,
                file.display().to_string(),
            ),
            None => {
                let suite = suite.unwrap_or(&self.suite);
                let list = Cmd::new(program.to_string_lossy()).args(["list", suite]);
                (list.capture()?, format!("the suite {suite}"))
            }
        };
        let all: Vec<Problem> = serde_json::from_str(&text)
            .with_context(|| format!("{source} is no JSON array of problems"))?;
        let problems = self.select(all);
        if problems.is_empty() {
            bail!("{source} has no problem of this kind; a new one needs --op and --shape");
        }
        Ok(problems)
    }

    /// The problems that are asked for, and those that are missing.
    fn select(&self, suite: Vec<Problem>) -> Vec<Problem> {
        let is_asked = |asked: &[String], name: &String| asked.is_empty() || asked.contains(name);
        let of_shape =
            |p: &Problem| self.shape.is_empty() || self.shape.iter().any(|s| s.0 == p.shape);
        let mut selected: Vec<Problem> = suite
            .into_iter()
            .filter(|p| is_asked(&self.op, &p.op) && of_shape(p))
            .collect();
        for op in &self.op {
            for Shape(shape) in &self.shape {
                if !selected.iter().any(|p| p.op == *op && p.shape == *shape) {
                    selected.push(Problem {
                        op: op.clone(),
                        shape: shape.clone(),
                        layout: contiguous(),
                        dtype: f32(),
                        pass: forward(),
                    });
                }
            }
        }
        let selected = spread(selected, &self.layout, |problem| &mut problem.layout);
        let selected = spread(selected, &self.dtype, |problem| &mut problem.dtype);
        spread(selected, &self.pass, |problem| &mut problem.pass)
    }
}

/// Each problem once with each of the words that are asked for; all as they are where none is.
fn spread(
    problems: Vec<Problem>,
    words: &[String],
    field: fn(&mut Problem) -> &mut String,
) -> Vec<Problem> {
    if words.is_empty() {
        return problems;
    }
    let mut spread = Vec::new();
    for word in words {
        for problem in &problems {
            let mut problem = problem.clone();
            field(&mut problem).clone_from(word);
            if !spread.contains(&problem) {
                spread.push(problem);
            }
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn problem(op: &str, shape: &[usize]) -> Problem {
        Problem {
            op: op.into(),
            shape: shape.into(),
            layout: "contiguous".into(),
            dtype: "f32".into(),
            pass: "forward".into(),
        }
    }

    #[test]
    fn shapes_read_as_they_are_printed() {
        assert_eq!(
            parse_shape("8x64x128x128").unwrap(),
            Shape(vec![8, 64, 128, 128])
        );
        assert!(parse_shape("8x").unwrap_err().to_string().contains("`8x`"));
        let printed = problem("layer_norm", &[8, 64]).to_string();
        assert_eq!(printed, "layer_norm 8x64 f32 forward");
        let last = Problem {
            layout: "channels_last".into(),
            ..problem("batch_norm", &[8, 64, 7, 7])
        };
        let printed = last.to_string();
        assert_eq!(printed, "batch_norm 8x64x7x7 channels_last f32 forward");
    }

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        selection: Selection,
    }

    /// What these arguments select from two problems.
    fn selected(arguments: &[&str]) -> Vec<Problem> {
        let cli = Cli::parse_from(["bench"].iter().chain(arguments));
        let suite = [problem("layer_norm", &[2, 4]), problem("rms_norm", &[2, 4])];
        cli.selection.select(suite.into())
    }

    #[test]
    fn a_file_of_problems_stands_for_a_suite() {
        let file = std::env::temp_dir().join(format!("cubenorm-shapes-{}", std::process::id()));
        fs::write(
            &file,
            r#"[{"op": "rms_norm", "shape": [3, 5], "dtype": "f16"}]"#,
        )
        .unwrap();
        let cli = Cli::parse_from(["tune", "--shapes", &file.to_string_lossy()]);
        let problems = cli.selection.problems(Path::new("unused"), None);
        fs::remove_file(&file).unwrap();
        let expected = Problem {
            dtype: "f16".into(),
            ..problem("rms_norm", &[3, 5])
        };
        assert_eq!(problems.unwrap(), [expected]);
        let gone = cli.selection.problems(Path::new("unused"), None);
        assert!(gone.unwrap_err().to_string().contains("not read"));
    }

    #[test]
    fn filters_choose_from_the_suite_and_add_what_it_lacks() {
        assert_eq!(selected(&[]).len(), 2);
        let rms = ["--op", "rms_norm"];
        assert_eq!(selected(&rms), [problem("rms_norm", &[2, 4])]);
        let other = ["--op", "rms_norm", "--shape", "3x5"];
        assert_eq!(selected(&other), [problem("rms_norm", &[3, 5])]);
        assert!(selected(&["--shape", "3x5"]).is_empty());
    }

    #[test]
    fn a_suite_with_a_filter_is_not_the_full_one() {
        let is_full = |arguments: &[&str]| {
            let cli = Cli::parse_from(["bench"].iter().chain(arguments));
            cli.selection.is_full()
        };
        assert!(is_full(&[]) && is_full(&["--dtype", "f16"]));
        assert!(!is_full(&["--suite", "tiny"]) && !is_full(&["--op", "rms_norm"]));
    }

    #[test]
    fn each_pass_and_type_and_layout_has_its_own_rows() {
        let arguments = [
            "--op",
            "rms_norm",
            "--pass",
            "forward,full",
            "--dtype",
            "f16,f32",
        ];
        let words: Vec<String> = selected(&arguments)
            .iter()
            .map(|p| format!("{} {}", p.pass, p.dtype))
            .collect();
        assert_eq!(
            words,
            ["forward f16", "forward f32", "full f16", "full f32"]
        );
        let last = selected(&["--layout", "channels_last"]);
        assert!(last.iter().all(|p| p.layout == "channels_last"));
        assert_eq!(last.len(), 2);
    }
}
