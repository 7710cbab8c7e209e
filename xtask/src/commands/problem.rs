//! A problem, in the words of the benchmark program's catalogue.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A problem. The benchmark's catalogue defines the words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

pub fn contiguous() -> String {
    "contiguous".into()
}

pub fn f32() -> String {
    "f32".into()
}

pub fn forward() -> String {
    "forward".into()
}

impl Problem {
    /// `2048x4096`, as a shape is written in commands.
    pub fn sizes(&self) -> String {
        sizes(&self.shape)
    }

    /// Its sizes, and the layout if that is not the usual one.
    pub fn tensor(&self) -> String {
        match self.layout == contiguous() {
            true => self.sizes(),
            false => format!("{} {}", self.sizes(), self.layout),
        }
    }

    /// All of it but which part of a training step it is.
    pub fn without_pass(&self) -> String {
        format!("{} {} {}", self.op, self.tensor(), self.dtype)
    }
}

pub fn sizes(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    sizes.join("x")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.without_pass(), self.pass)
    }
}
