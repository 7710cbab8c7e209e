//! What kernels can be compiled to, and what exactly for.

use std::fmt;

use serde::Serialize;
use strum::{EnumIter, EnumString, IntoStaticStr};

/// A language that one of CubeCL's compilers writes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    EnumIter,
    EnumString,
    IntoStaticStr,
    Serialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Language {
    /// Assembly for NVIDIA's GPUs, by LLVM: what the runtime `cuda` launches.
    Ptx,
    /// C++ for the same, which the runtime `cuda` launches where CubeCL's feature `cuda-cpp` is on.
    Cuda,
    /// C++ for AMD's GPUs.
    Hip,
    /// C++ for Apple's.
    Msl,
    /// What browsers take, and wgpu turns into anything else.
    Wgsl,
    /// What Vulkan takes.
    Spirv,
    /// Machine code for this machine's processor, by LLVM.
    Llvm,
}

impl Language {
    /// Its name on the command line and in names of folders.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A language, and the device or the version that it is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// PTX for a compute capability such as 90.
    Ptx {
        /// The compute capability.
        sm: u32,
    },
    /// CUDA C++ for a compute capability.
    Cuda {
        /// The compute capability.
        sm: u32,
    },
    /// HIP C++ for a GPU such as `gfx1100`.
    Hip {
        /// The GPU, as ROCm calls it.
        gfx: &'static str,
    },
    /// Metal's language.
    Msl,
    /// WebGPU's language.
    Wgsl,
    /// SPIR-V for a version of Vulkan.
    Spirv {
        /// Version of Vulkan: major, then minor.
        vulkan: (u8, u8),
        /// Whether shared memory has a layout: `VK_KHR_workgroup_memory_explicit_layout`.
        explicit_shared_memory: bool,
    },
    /// The processor of this machine.
    Llvm,
}

impl Target {
    /// What it is written in.
    pub fn language(self) -> Language {
        match self {
            Self::Ptx { .. } => Language::Ptx,
            Self::Cuda { .. } => Language::Cuda,
            Self::Hip { .. } => Language::Hip,
            Self::Msl => Language::Msl,
            Self::Wgsl => Language::Wgsl,
            Self::Spirv { .. } => Language::Spirv,
            Self::Llvm => Language::Llvm,
        }
    }

    /// How names of its files end.
    pub fn extension(self) -> &'static str {
        match self.language() {
            Language::Ptx => "ptx",
            Language::Cuda => "cu",
            Language::Hip => "hip",
            Language::Msl => "metal",
            Language::Wgsl => "wgsl",
            Language::Spirv => "spv",
            Language::Llvm => "ir",
        }
    }

    /// What it is written for, where the language alone does not say.
    pub fn variant(self) -> Option<String> {
        match self {
            Self::Ptx { sm } | Self::Cuda { sm } => Some(format!("sm_{sm}")),
            Self::Hip { gfx } => Some(gfx.to_owned()),
            Self::Spirv {
                vulkan: (major, minor),
                ..
            } => Some(format!("vulkan{major}.{minor}")),
            Self::Msl | Self::Wgsl | Self::Llvm => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.language().name())?;
        match self.variant() {
            Some(variant) => write!(f, " {variant}"),
            None => Ok(()),
        }
    }
}
