//! `cargo xtask features`: every runtime's feature builds, alone and with all others.

use anyhow::{Result, ensure};

use super::outcome::Steps;
use crate::cargo::{BURN_FACING, on, target_folder};

/// Type-check every runtime's feature, alone and with all others.
///
/// Nothing is linked, so neither LLVM nor a driver is needed. The checks have their own target
/// folder, so no build starts anew. --shared uses the builds' folder, and then LLVM has to be
/// there. Without --burn only the crates on CubeCL alone are checked: kernels, operators in files,
/// and the suite. With it all crates on Burn are checked, which takes many minutes for each
/// combination.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Check the crates that depend on Burn
    #[arg(long)]
    pub burn: bool,
    /// Only combinations with one of these features
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub feature: Vec<String>,
    /// Only features alone, not all together
    #[arg(long)]
    pub alone: bool,
    /// Take over what the builds have checked
    #[arg(long)]
    pub shared: bool,
}

/// Each runtime, and all together, as docs.rs does.
const COMBINATIONS: [&str; 8] = [
    "wgpu",
    "vulkan",
    "webgpu",
    "metal",
    "cuda",
    "rocm",
    "cpu",
    "wgpu,vulkan,webgpu,metal,cuda,rocm,cpu",
];

/// Crates that depend on CubeCL, but not on Burn.
const KERNEL_FACING: [&str; 3] = ["cubenorm-kernels", "cubenorm-models", "cubenorm-tests"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let combinations = combinations(args.burn);
    let chosen: Vec<&String> = combinations
        .iter()
        .filter(|combination| {
            let mut features = combination.split(',').filter(|feature| *feature != "burn");
            let has = |feature: &String| combination.split(',').any(|other| other == feature);
            let is_asked = args.feature.is_empty() || args.feature.iter().any(has);
            is_asked && (!args.alone || features.nth(1).is_none())
        })
        .collect();
    ensure!(!chosen.is_empty(), "no combination has that feature");

    let packages: &[&str] = match args.burn {
        true => &BURN_FACING,
        false => &KERNEL_FACING,
    };
    let mut steps = Steps::default();
    for combination in chosen {
        let check = on("check", packages, combination);
        let check = match args.shared {
            true => check,
            // A build script must not see the environment of the builds. As on docs.rs, build
            // scripts leave out what only a linker needs.
            false => check
                .arg("--target-dir")
                .arg(target_folder("features"))
                .env("DOCS_RS", "1"),
        };
        steps.run(combination, || check.run());
    }
    steps.report()
}

/// The features of each check.
fn combinations(burn: bool) -> Vec<String> {
    match burn {
        false => COMBINATIONS.map(str::to_owned).to_vec(),
        true => ["flex", "flex,cpu,wgpu"]
            .iter()
            .chain(&COMBINATIONS)
            .map(|runtimes| format!("burn,{runtimes}"))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;
    use crate::device::Device;

    #[test]
    fn each_runtime_is_checked_alone_and_with_all() {
        let all = COMBINATIONS[COMBINATIONS.len() - 1];
        for &name in Device::VARIANTS {
            let burn = combinations(true);
            assert!(burn.contains(&format!("burn,{name}")), "{name}");
            if name != "flex" {
                assert!(COMBINATIONS.contains(&name), "{name}");
                assert!(all.split(',').any(|other| other == name), "{name}");
            }
        }
    }
}
