//! Checkers of sources: their paths, and the ones that are missing.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Result, ensure};

use super::program::Target;
use crate::{exec::on_path, python::Python};

/// NVIDIA's compilers and headers, of one release: it writes PTX 8.8, and knows sm_80 to sm_121.
const CUDA: [&str; 4] = [
    "nvidia-cuda-nvcc-cu12==12.9.86",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-cccl-cu12==12.9.27",
];

/// Speaks with NVRTC and hipRTC.
pub(super) const SCRIPT: &str = "runtime_compiler.py";

/// Debian's HIP 5.2, which brings hipRTC.
const HIP: &str = "libamdhip64.so.5";

/// Parts of NVIDIA's packages.
#[derive(Clone, Debug)]
pub(super) struct Cuda {
    /// Value for CUDA_PATH.
    pub toolkit: PathBuf,
    pub ptxas: PathBuf,
    pub nvrtc: PathBuf,
    pub include: Vec<PathBuf>,
}

/// The checkers that are there.
pub(super) struct Tools {
    pub python: Option<Python>,
    pub cuda: Option<Cuda>,
    pub hip: Option<&'static str>,
    pub spirv_val: bool,
    /// The checkers that are missing, and why.
    pub missing: Vec<(Target, String)>,
}

impl Tools {
    /// Looks for what these targets need, and installs what can be installed.
    pub(super) fn find(targets: &[Target], checks: bool) -> Self {
        let mut tools = Self {
            python: None,
            cuda: None,
            hip: None,
            spirv_val: on_path("spirv-val"),
            missing: Vec::new(),
        };
        let wants = |target| targets.contains(&target);
        if wants(Target::Ptx) || checks && wants(Target::Cuda) {
            match cuda() {
                Ok((python, cuda)) => (tools.python, tools.cuda) = (Some(python), Some(cuda)),
                Err(error) => {
                    for target in [Target::Ptx, Target::Cuda] {
                        tools.missing.push((target, format!("{error:#}")));
                    }
                }
            }
        }
        if checks && wants(Target::Hip) {
            match hip() {
                Ok(python) => {
                    tools.hip = Some(HIP);
                    tools.python.get_or_insert(python);
                }
                Err(error) => tools.missing.push((Target::Hip, format!("{error:#}"))),
            }
        }
        if checks && wants(Target::Spirv) && !tools.spirv_val {
            let why = "there is no spirv-val (Debian: apt-get install spirv-tools)";
            tools.missing.push((Target::Spirv, why.to_owned()));
        }
        tools.missing.retain(|(target, _)| wants(*target));
        tools
    }

    /// True if a target can be written at all.
    pub(super) fn generates(&self, target: Target) -> bool {
        // LLVM links functions of NVIDIA's toolkit into PTX.
        target != Target::Ptx || self.cuda.is_some()
    }

    /// NVIDIA's toolkit, as far as it is there.
    pub(super) fn toolkit(&self) -> Option<&PathBuf> {
        Some(&self.cuda.as_ref()?.toolkit)
    }

    /// The checker of a target, if it is there.
    pub(super) fn checker(&self, target: Target) -> Option<&'static str> {
        match target {
            Target::Ptx => self.cuda.is_some().then_some("ptxas 12.9"),
            Target::Cuda => self.cuda.is_some().then_some("NVRTC 12.9"),
            Target::Hip => self.hip.is_some().then_some("hipRTC 5.2"),
            Target::Msl => Some("structure"),
            Target::Wgsl => Some("naga"),
            Target::Spirv => self.spirv_val.then_some("spirv-val"),
            Target::Llvm => Some("LLVM"),
        }
    }
}

fn cuda() -> Result<(Python, Cuda)> {
    let python = Python::new()?;
    // Other packages that these depend on are not needed.
    python.install(&CUDA, &["--no-deps"])?;
    let packages = python.site_packages()?.join("nvidia");
    let toolkit = packages.join("cuda_nvcc");
    let cuda = Cuda {
        ptxas: toolkit.join("bin/ptxas"),
        nvrtc: packages.join("cuda_nvrtc/lib/libnvrtc.so.12"),
        // Headers of the runtime include some of the compiler's.
        include: ["cuda_runtime", "cuda_cccl", "cuda_nvcc"]
            .map(|package| packages.join(package).join("include"))
            .into(),
        toolkit,
    };
    for part in [&cuda.ptxas, &cuda.nvrtc] {
        ensure!(part.is_file(), "{} is not there", part.display());
    }
    Ok((python, cuda))
}

fn hip() -> Result<Python> {
    let python = Python::new()?;
    // Without a source to compile, all that it does is load the library.
    let loaded = python
        .script(SCRIPT)
        .args([HIP, "hiprtc"])
        .command()
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        loaded.status.success(),
        "there is no {HIP} (Debian: apt-get install libamdhip64-5 libhiprtc-builtins5)"
    );
    Ok(python)
}
