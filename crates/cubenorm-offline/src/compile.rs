//! Compiles kernels to source text with CubeCL's compilers.

use std::any::Any;
use std::ffi::CStr;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cubecl::ir::nvidia::SmArch;
use cubecl::prelude::*;
use cubecl::{Compiler, WgpuCompilationOptions, define_kernel};
use cubecl_cpp::shared::{CompilationOptions, CppCompiler, CppSupportedFeatures};
use cubecl_cpp::{MslCompiler, target};
use cubecl_llvm::nvptx::ptx_version::PtxVersion;
use cubecl_llvm::{LlvmTarget, PlironArtifact, PlironCompiler, PlironOptions};
use cubecl_wgpu::{SpirvCompiler, WgslCompiler};

use crate::{CompileError, Target};

/// The CUDA version of the driver that PTX targets. Older drivers may reject it, newer ones accept
/// it.
const CUDA_DRIVER: i32 = 12_080;

/// A compiled kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Readable text: the disassembly of SPIR-V, CubeCL's representation of machine code, else the
    /// source.
    pub text: String,
    /// Input of the next tool, if that is not text.
    pub binary: Option<Vec<u8>>,
}

impl Source {
    fn text(text: impl Display) -> Self {
        Self {
            text: text.to_string(),
            binary: None,
        }
    }
}

impl Target {
    /// Compiles a kernel up to the code that this target's runtime passes to its driver.
    ///
    /// # Errors
    ///
    /// [`CompileError`] if CubeCL does not compile the kernel.
    pub fn compile(self, kernel: &dyn CubeKernel) -> Result<Source, CompileError> {
        // CubeCL's compilers panic on unsupported input, such as bf16 in WGSL.
        match catch_unwind(AssertUnwindSafe(|| self.compile_or_panic(kernel))) {
            Ok(result) => result,
            Err(panic) => Err(CompileError::Panicked(message(&*panic))),
        }
    }

    fn compile_or_panic(self, kernel: &dyn CubeKernel) -> Result<Source, CompileError> {
        let definition = define_kernel(kernel)?;
        match self {
            Self::Ptx { sm } => ptx(definition, sm),
            Self::Cuda { sm } => {
                let options = CompilationOptions {
                    supports_features: CppSupportedFeatures {
                        grid_constants: sm >= 70,
                        clusters: sm >= 90,
                        fast_math: true,
                        fast_tanh: sm >= 75,
                        elect_sync: sm >= 90,
                        dp4a: sm >= 61,
                    },
                    ..Default::default()
                };
                let mut compiler = CppCompiler::<target::Cuda>::default();
                Ok(Source::text(compiler.compile(definition, &options)?))
            }
            Self::Hip { gfx } => {
                let gfx = cubecl::ir::amd::GfxArch::parse(gfx);
                let options = CompilationOptions {
                    warp_size: gfx.plane_dim().unwrap_or(32) as usize,
                    supports_features: CppSupportedFeatures {
                        fast_math: true,
                        ..Default::default()
                    },
                    amd_wmma: gfx.wmma(),
                };
                let mut compiler = CppCompiler::<target::Hip>::default();
                Ok(Source::text(compiler.compile(definition, &options)?))
            }
            Self::Msl => {
                let options = CompilationOptions::default();
                Ok(Source::text(
                    MslCompiler::default().compile(definition, &options)?,
                ))
            }
            Self::Wgsl => {
                let options = WgpuCompilationOptions::default();
                Ok(Source::text(WgslCompiler.compile(definition, &options)?))
            }
            Self::Spirv {
                vulkan,
                explicit_shared_memory,
            } => spirv(definition, vulkan, explicit_shared_memory),
            Self::Llvm => {
                // CubeCL's engine does not expose LLVM's output, but its input is available.
                let text = definition.body.to_string();
                PlironCompiler {
                    target: LlvmTarget::Cpu,
                }
                .compile(definition, &PlironOptions::default())?;
                Ok(Source::text(text))
            }
        }
    }
}

fn ptx(definition: KernelDefinition, sm: u32) -> Result<Source, CompileError> {
    let options = PlironOptions {
        sm_arch: Some(SmArch::new(sm, true)),
        ptx_version: PtxVersion::for_driver(CUDA_DRIVER),
        grid_constants: sm >= 70,
        ..Default::default()
    };
    let mut compiler = PlironCompiler {
        target: LlvmTarget::Nvptx,
    };
    match compiler.compile(definition, &options)? {
        PlironArtifact::NvptxCode(module) => {
            let bytes: Vec<u8> = module.ptx.iter().map(|&c| c as u8).collect();
            let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
            text.map(Source::text)
                .map_err(|error| CompileError::Refused(error.to_string()))
        }
        _ => Err(CompileError::Refused("LLVM gave no PTX".to_owned())),
    }
}

fn spirv(
    definition: KernelDefinition,
    vulkan: (u8, u8),
    explicit_shared_memory: bool,
) -> Result<Source, CompileError> {
    let mut options = WgpuCompilationOptions {
        supports_u64: true,
        supports_vulkan_compiler: true,
        ..Default::default()
    };
    options.vulkan.max_spirv_version = match vulkan {
        (1, 0..=2) => (1, 5),
        _ => (1, 6),
    };
    options.vulkan.max_vector_size = 4;
    // The minimum that Vulkan guarantees.
    options.vulkan.push_constant_size = 128;
    options.vulkan.supports_explicit_smem = explicit_shared_memory;
    options.vulkan.supports_uniform_standard_layout = true;
    let kernel = SpirvCompiler.compile(definition, &options)?;
    let words = kernel.assembled_module.iter();
    Ok(Source {
        binary: Some(words.flat_map(|word| word.to_le_bytes()).collect()),
        text: kernel.to_string(),
    })
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_else(|| "without a message".to_owned())
}
