use std::fmt;

use clap::ValueEnum;

/// Implementation of a model's norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Norms {
    /// Burn's norms.
    Burn,
    /// `cubenorm`'s fused norms.
    Cubenorm,
}

impl fmt::Display for Norms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Burn => "burn",
            Self::Cubenorm => "cubenorm",
        })
    }
}

/// The values of `--norms`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Choice {
    /// `burn::nn`.
    Burn,
    /// `cubenorm::nn`.
    Cubenorm,
    /// Both, compared.
    Both,
}

impl Choice {
    /// The selected implementations.
    pub fn kinds(self) -> &'static [Norms] {
        match self {
            Self::Burn => &[Norms::Burn],
            Self::Cubenorm => &[Norms::Cubenorm],
            Self::Both => &[Norms::Burn, Norms::Cubenorm],
        }
    }
}
