//! From a kernel to the source of each target.
#![cfg(feature = "compilers")]

use cubenorm_core::{DType, NormDesc, Statistics, StrategyChoice, TensorDesc};
use cubenorm_kernels::{ForwardTensors, launch_forward};
use cubenorm_offline::{Kernel, Profile, Recorder, Source, Target, check, representation};

/// What an RMS norm comes to on a device, which is one kernel.
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
fn each_target_is_written_in_its_own_language() {
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
fn ptx_names_the_architecture_that_it_was_asked_for() {
    for sm in [80, 90, 100] {
        let text = source(&Profile::nvidia(sm), Target::Ptx { sm }).text;
        assert!(text.contains(&format!(".target sm_{sm}")), "{text}");
    }
}

#[test]
fn spirv_comes_as_words_too_and_in_the_version_of_its_vulkan() {
    for (profile, minor) in [(Profile::older_vulkan(), 5), (Profile::vulkan(), 6)] {
        let binary = source(&profile, profile.targets[0]).binary;
        let binary = binary.expect("SPIR-V is binary");
        assert_eq!(binary[..4], 0x0723_0203_u32.to_le_bytes());
        assert_eq!(binary[4..8], [0, minor, 1, 0]);
    }
}

#[test]
fn what_cubecl_cannot_compile_is_an_error_and_no_panic() {
    // A browser refuses bf16 before anything is compiled; the compiler behind it has to be asked in person.
    let kernel = rms_norm(&Profile::nvidia(90), DType::BF16);
    let error = Target::Wgsl.compile(&*kernel).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(representation(&*kernel).unwrap().contains("normalize"));
}

#[test]
fn what_is_checked_in_here_is_right() {
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
