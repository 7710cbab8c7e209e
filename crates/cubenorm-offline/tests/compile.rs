//! Compiles kernels to each target.
#![cfg(feature = "compilers")]

use cubenorm_core::{DType, NormDesc, Statistics, StrategyChoice, TensorDesc};
use cubenorm_kernels::{ForwardTensors, launch_forward};
use cubenorm_offline::{Kernel, Profile, Recorder, Source, Target, check, representation};

/// The single kernel of an RMS norm on a device.
fn rms_norm(profile: &Profile, dtype: DType) -> Kernel {
    let recorder = Recorder::of(profile);
    let client = recorder.client();
    let input = TensorDesc::contiguous([64, 256], dtype);
    let desc = NormDesc::new(input, [1], Statistics::MeanSquare);
    let tensors = ForwardTensors::new(client.empty(64 * 256 * dtype.size()));
    launch_forward(client, &desc, &tensors, StrategyChoice::Inferred).expect("it can be launched");
    recorder.take().pop().expect("a kernel was launched")
}

fn source(profile: &Profile, target: Target) -> Source {
    let kernel = rms_norm(profile, DType::F32);
    target.compile(&*kernel).expect("it compiles")
}

#[test]
fn each_target_uses_its_language() {
    for (profile, word) in [
        (Profile::nvidia(80), ".visible .entry"),
        (Profile::amd("gfx1030"), "__global__"),
        (Profile::apple(), "[[buffer("),
        (Profile::browser(), "@compute"),
        (Profile::vulkan(), "OpEntryPoint"),
        (Profile::cpu(), "normalize"),
    ] {
        let text = source(&profile, profile.targets[0]).text;
        assert!(text.contains(word), "{}: {word} in\n{text}", profile.name);
    }
}

#[test]
fn ptx_names_requested_architecture() {
    for sm in [80, 90, 100] {
        let text = source(&Profile::nvidia(sm), Target::Ptx { sm }).text;
        assert!(text.contains(&format!(".target sm_{sm}")), "{text}");
    }
}

#[test]
fn spirv_has_words_in_version_of_vulkan() {
    for (profile, minor) in [(Profile::older_vulkan(), 5), (Profile::vulkan(), 6)] {
        let binary = source(&profile, profile.targets[0]).binary;
        let binary = binary.expect("SPIR-V is binary");
        assert_eq!(binary[..4], 0x0723_0203_u32.to_le_bytes());
        assert_eq!(binary[4..8], [0, minor, 1, 0]);
    }
}

#[test]
fn unsupported_kernel_is_an_error_not_a_panic() {
    // A browser rejects bf16 before compilation, so this calls the compiler directly.
    let kernel = rms_norm(&Profile::nvidia(90), DType::BF16);
    let error = Target::Wgsl.compile(&*kernel).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(representation(&*kernel).unwrap().contains("normalize"));
}

#[test]
fn checked_sources_are_valid() {
    for profile in [
        Profile::apple(),
        Profile::browser(),
        Profile::software_wgsl(),
    ] {
        let target = profile.targets[0];
        let source = source(&profile, target);
        let checked = check(target, &source, &profile.properties);
        assert_eq!(checked, Some(Ok(())), "{}", profile.name);
    }
    let profile = Profile::vulkan();
    let target = profile.targets[0];
    let source = source(&profile, target);
    assert_eq!(check(target, &source, &profile.properties), None);
}
