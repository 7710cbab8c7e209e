//! Problems and devices of a verb.

use std::{error::Error, fs, path::PathBuf, str::FromStr};

use anyhow::{Context, Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use cubenorm_problems::{DType, Layout, Op, Pass, Problem, Suite, sizes};
use strum::VariantNames;

use super::program;
use crate::device::{self, Device};

/// The arguments of verbs that take problems.
#[derive(clap::Args)]
pub(super) struct Selection {
    /// Which shapes
    #[arg(long, value_name = "NAME", default_value = "full", value_parser = word::<Suite>())]
    suite: Suite,
    /// The problems of FILE instead: a JSON array of {"op": ..., "shape": [...], "layout": ...,
    /// "dtype": ..., "pass": ...}
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    shapes: Option<PathBuf>,
    /// Devices to run on [default: cpu and wgpu, if this machine has them]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Only these operators
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = word::<Op>())]
    op: Vec<Op>,
    /// Only these shapes, as 2048x4096; with --op, a shape that the suite lacks is added to it
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = parse_shape)]
    shape: Vec<Shape>,
    /// Only these layouts; every shape takes each of them
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = word::<Layout>())]
    layout: Vec<Layout>,
    /// Only these types
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = word::<DType>())]
    dtype: Vec<DType>,
    /// Only these passes (full is both, as in training); every shape takes each of them
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = word::<Pass>())]
    pass: Vec<Pass>,
    /// Run this benchmark program, which was built elsewhere, instead of a build
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A word of the catalogue, listed by help and by errors.
pub(super) fn word<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync> + VariantNames + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|word| word.parse())
}

/// Everything that a verb needs, checked to be there.
pub(super) struct Selected {
    pub devices: Vec<Device>,
    /// The benchmark program, built for these devices.
    pub program: PathBuf,
    pub problems: Vec<Problem>,
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
    /// Checks problems and devices first, because the build of the program takes minutes.
    ///
    /// `suite` replaces the one on the command line.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, a word on the command line selects nothing, a device cannot run
    /// here, or the program does not build.
    pub(super) fn resolve(&self, suite: Option<Suite>) -> Result<Selected> {
        let suite = suite.unwrap_or(self.suite);
        let problems = match &self.shapes {
            Some(file) => {
                let source = file.display().to_string();
                let text =
                    fs::read_to_string(file).with_context(|| format!("{source} not read"))?;
                self.select(parse(&text, &source)?, &source)
            }
            None => self.select(suite.problems(), &format!("the suite {suite}")),
        };
        let problems = problems?;
        let devices = device::chosen(&self.device, &[Device::Cpu, Device::Wgpu])?;
        Ok(Selected {
            program: program::find(program::BENCH, &devices, self.program.as_deref())?,
            devices,
            problems,
        })
    }

    /// Number of named devices.
    pub(super) fn named_devices(&self) -> usize {
        self.device.len()
    }

    /// Selects problems of the suite, and adds missing ones. A word that selects nothing is an
    /// error.
    fn select(&self, suite: Vec<Problem>, source: &str) -> Result<Vec<Problem>> {
        let of_op = |p: &Problem| self.op.is_empty() || self.op.contains(&p.op);
        let of_shape =
            |p: &Problem| self.shape.is_empty() || self.shape.iter().any(|s| s.0 == p.shape);
        let mut selected: Vec<Problem> = suite
            .into_iter()
            .filter(|p| of_op(p) && of_shape(p))
            .collect();
        for &op in &self.op {
            for Shape(shape) in &self.shape {
                if !selected.iter().any(|p| p.op == op && p.shape == *shape) {
                    selected.push(Problem::new(op, shape.as_slice()));
                }
            }
        }
        for op in &self.op {
            ensure!(
                selected.iter().any(|p| p.op == *op),
                "{source} has no {op}; --shape adds one"
            );
        }
        for Shape(shape) in &self.shape {
            ensure!(
                selected.iter().any(|p| p.shape == *shape),
                "{source} has nothing of the shape {}; --op adds it",
                sizes(shape)
            );
        }
        let selected = spread(selected, &self.layout, |problem, word| {
            problem.layout = word;
        });
        let selected = spread(selected, &self.dtype, |problem, word| problem.dtype = word);
        let selected = spread(selected, &self.pass, |problem, word| problem.pass = word);
        ensure!(!selected.is_empty(), "{source} has no problem");
        Ok(selected)
    }
}

/// The problems of a file.
fn parse(text: &str, source: &str) -> Result<Vec<Problem>> {
    serde_json::from_str(text).with_context(|| format!("{source} is no JSON array of problems"))
}

/// Each problem once with each of the words, or as it is if there is none.
fn spread<T: Copy>(problems: Vec<Problem>, words: &[T], set: fn(&mut Problem, T)) -> Vec<Problem> {
    if words.is_empty() {
        return problems;
    }
    let mut spread = Vec::new();
    for &word in words {
        for problem in &problems {
            let mut problem = problem.clone();
            set(&mut problem, word);
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

    #[test]
    fn shapes_read_as_commands_write_them() {
        assert_eq!(
            parse_shape("8x64x128x128").unwrap(),
            Shape(vec![8, 64, 128, 128])
        );
        assert!(parse_shape("8x").unwrap_err().to_string().contains("`8x`"));
    }

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        selection: Selection,
    }

    /// The selection of these arguments from two problems.
    fn select(arguments: &[&str]) -> Result<Vec<Problem>> {
        let cli = Cli::try_parse_from(["bench"].iter().chain(arguments))?;
        let suite = [
            Problem::new(Op::LayerNorm, [2, 4]),
            Problem::new(Op::RmsNorm, [2, 4]),
        ];
        cli.selection.select(suite.into(), "the suite")
    }

    fn selected(arguments: &[&str]) -> Vec<Problem> {
        select(arguments).unwrap()
    }

    #[test]
    fn a_file_of_problems_stands_for_a_suite() {
        let expected = Problem {
            dtype: DType::F16,
            ..Problem::new(Op::RmsNorm, [3, 5])
        };
        let text = r#"[{"op": "rms_norm", "shape": [3, 5], "dtype": "f16"}]"#;
        assert_eq!(parse(text, "x").unwrap(), [expected]);
    }

    #[test]
    fn a_misspelled_word_in_a_file_is_named() {
        let error = |text| format!("{:#}", parse(text, "x").unwrap_err());
        let key = error(r#"[{"op": "rms_norm", "shape": [3, 5], "layuot": "channels_last"}]"#);
        assert!(key.contains("unknown field `layuot`"), "{key}");
        let op = error(r#"[{"op": "rmsnorm", "shape": [3, 5]}]"#);
        assert!(
            op.contains("`rmsnorm`") && op.contains("`rms_norm`,"),
            "{op}"
        );
        let list = error(r#"{"op": "rms_norm"}"#);
        assert!(list.contains("no JSON array"), "{list}");
    }

    #[test]
    fn a_name_that_selects_nothing_is_an_error() {
        let error = |arguments: &[&str]| select(arguments).unwrap_err().to_string();
        assert!(error(&["--op", "layer_norm,rmsnorm"]).contains("'rmsnorm'"));
        let op = error(&["--op", "rms_norm,batch_norm"]);
        assert_eq!(op, "the suite has no batch_norm; --shape adds one");
        let shape = error(&["--shape", "2x4,3x5"]);
        assert_eq!(
            shape,
            "the suite has nothing of the shape 3x5; --op adds it"
        );
    }

    #[test]
    fn filters_select_and_add_problems() {
        assert_eq!(selected(&[]).len(), 2);
        let rms = ["--op", "rms_norm"];
        assert_eq!(selected(&rms), [Problem::new(Op::RmsNorm, [2, 4])]);
        let other = ["--op", "rms_norm", "--shape", "3x5"];
        assert_eq!(selected(&other), [Problem::new(Op::RmsNorm, [3, 5])]);
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
        assert!(last.iter().all(|p| p.layout == Layout::ChannelsLast));
        assert_eq!(last.len(), 2);
    }
}
