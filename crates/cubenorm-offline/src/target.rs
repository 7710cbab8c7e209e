//! Compilation targets.

use std::fmt;

use serde::Serialize;
use strum::{EnumIter, EnumString, IntoStaticStr};

/// An output language of CubeCL's compilers.
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
    /// Assembly for NVIDIA GPUs by LLVM, which the `cuda` runtime launches.
    Ptx,
    /// C++ for NVIDIA GPUs, which the `cuda` runtime launches with CubeCL's feature `cuda-cpp`.
    Cuda,
    /// C++ for AMD GPUs.
    Hip,
    /// C++ for Apple GPUs.
    Msl,
    /// The shading language of WebGPU, which wgpu translates to others.
    Wgsl,
    /// The shading language of Vulkan.
    Spirv,
    /// Machine code for the current CPU, by LLVM.
    Llvm,
}

impl Language {
    /// Name on the command line and in folder names.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A language, and the device or version that it targets.
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
        /// The GPU's name in ROCm.
        gfx: &'static str,
    },
    /// The Metal shading language.
    Msl,
    /// The WebGPU shading language.
    Wgsl,
    /// SPIR-V for a version of Vulkan.
    Spirv {
        /// Version of Vulkan: major, then minor.
        vulkan: (u8, u8),
        /// True if shared memory has an explicit layout: `VK_KHR_workgroup_memory_explicit_layout`.
        explicit_shared_memory: bool,
    },
    /// The current CPU.
    Llvm,
}

impl Target {
    /// The output language.
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

    /// File name extension.
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

    /// The device or version, if the language has several.
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
