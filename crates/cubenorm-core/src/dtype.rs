use std::fmt;

use serde::{Deserialize, Serialize};

/// An element type that a normalization reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// True if the `cpu` runtime can round to this dtype on this processor. It is false only for
    /// bfloat16 on x86-64 without AVX-512 BF16: LLVM calls a function that CubeCL 0.11.3's `cpu`
    /// runtime lacks.
    pub fn is_rounded_by_processor(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self == Self::BF16 {
            return std::arch::is_x86_feature_detected!("avx512bf16");
        }
        true
    }

    /// Every dtype, narrowest first.
    pub const ALL: [Self; 4] = [Self::F16, Self::BF16, Self::F32, Self::F64];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The dtype of accumulation and computation: `f64` for `f64`, `f32` for all others.
    pub const fn accumulation(self) -> Self {
        match self {
            Self::F64 => Self::F64,
            Self::F16 | Self::BF16 | Self::F32 => Self::F32,
        }
    }

    /// True if tensors of both dtypes may be part of one normalization: they have one accumulation dtype.
    pub fn mixes_with(self, other: Self) -> bool {
        self.accumulation() == other.accumulation()
    }

    /// The dtypes that [mix with](Self::mixes_with) this one, in words.
    pub(crate) fn mixing(self) -> String {
        let mixing = Self::ALL.into_iter().filter(|it| it.mixes_with(self));
        let names: Vec<String> = mixing.map(|it| it.to_string()).collect();
        names.join(" or ")
    }

    /// True for the dtypes of 16 bits.
    pub const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}
