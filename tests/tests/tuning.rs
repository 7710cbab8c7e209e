//! Autotuning on every runtime: results are right, and each key is measured once.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cubecl::{
    bundle::BundleFormat,
    config::{CubeClRuntimeConfig, RuntimeConfig},
    environment,
};

use cubenorm_core::{
    BackwardDesc, DType, NormDesc, Statistics, StrategyChoice, TensorDesc, forward_candidates,
    knobs,
};
use cubenorm_kernels::{hardware, least_tuned, tuned_forward, working_sets};
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

fn norm(shape: &[usize], axes: &[usize], dtype: DType) -> NormDesc {
    let params: Vec<usize> = (0..shape.len())
        .map(|dim| if axes.contains(&dim) { shape[dim] } else { 1 })
        .collect();
    NormDesc::new(
        TensorDesc::contiguous(shape, dtype),
        axes,
        Statistics::MeanVariance,
    )
    .with_scale(TensorDesc::contiguous(params.clone(), dtype))
    .with_bias(TensorDesc::contiguous(params, dtype))
}

/// The factor that makes this many elements enough to be measured on a device.
fn enough(device: &TestDevice, elements: usize) -> usize {
    least_tuned(&hardware(&device.client)).div_ceil(elements)
}

/// The shape with more of its first dimension, if the device measures none so small.
fn large<const N: usize>(device: &TestDevice, mut shape: [usize; N]) -> [usize; N] {
    shape[0] *= enough(device, shape.iter().product());
    shape
}

#[test]
fn tuned_results_agree_with_the_reference() {
    let _environment = environment("results", None);
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        for desc in [
            norm(&large(&device, [64, 512]), &[1], DType::F32),
            norm(&large(&device, [2, 48, 128]), &[0, 2], DType::F32),
            norm(&large(&device, [300, 64]), &[0], DType::F32),
            norm(&large(&device, [1, 40_000]), &[1], DType::F32),
        ] {
            let case = Case::new(desc, 5);
            // The first call measures, the second uses the cache.
            for _ in 0..2 {
                case.check(&device, StrategyChoice::Tuned).unwrap();
            }
        }
        // Another shape with the same key.
        let [rows, _] = large(&device, [64, 512]);
        let other = Case::new(norm(&[rows - 3, 512], &[1], DType::F32), 6);
        other.check(&device, StrategyChoice::Tuned).unwrap();
        // A CPU is measured on several working sets. Only the first is the caller's buffers.
        let shape = large(&device, [700, 600]);
        let input = TensorDesc::contiguous(shape, DType::F32);
        let sum = norm(&shape, &[1], DType::F32)
            .with_residual(input.clone())
            .with_sum();
        let swapped = norm(&large(&device, [600, 700]), &[0], DType::F32);
        for desc in [sum, swapped] {
            let moved = 2 * 4 * shape[0] * shape[1];
            let is_cpu = hardware(&device.client).cpu_cores.is_some();
            let sets = working_sets(&hardware(&device.client), moved);
            assert!(sets > 1 || !is_cpu, "{}: {sets}", device.name);
            let case = Case::new(desc, 7);
            case.check(&device, StrategyChoice::Tuned).unwrap();
        }
    }
}

#[test]
fn tuned_gradients_agree_with_central_differences() {
    let _environment = environment("gradients", None);
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let mut cases = vec![(large(&device, [64, 256]).to_vec(), vec![1])];
        // A difference of a parameter sums over all elements, which takes long if nothing small is measured.
        if enough(&device, 64 * 256) == 1 {
            cases.push((vec![4, 16, 160], vec![0, 2]));
            cases.push((vec![700, 300], vec![1]));
        }
        for (shape, axes) in cases {
            let desc = BackwardDesc::new(norm(&shape, &axes, DType::F32));
            let case = BackwardCase::of(desc, 3);
            for _ in 0..2 {
                case.check(&device, StrategyChoice::Tuned).unwrap();
            }
        }
    }
}

#[test]
fn shape_is_measured_once() {
    let _environment = environment("once", None);
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let shape = large(&device, [96, 1536]);
        let case = Case::new(norm(&shape, &[1], DType::F32), 5);
        let hardware = hardware(&device.client);
        let candidates = forward_candidates(&case.desc.problem().unwrap(), &hardware).unwrap();
        assert!(candidates.len() > 1, "{}: nothing to choose", device.name);
        let tensors = case.tensors(&device.client);
        let ask = || tuned_forward(&device.client, &case.desc, &tensors, Duration::MAX).unwrap();
        let start = Instant::now();
        let chosen = ask();
        let first = start.elapsed();
        let all = knobs(&hardware);
        assert!(
            candidates.iter().any(|&place| all[place] == chosen),
            "{}: {chosen} is no candidate",
            device.name
        );
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(ask(), chosen, "{}", device.name);
        }
        let ten = start.elapsed();
        println!("{}: {first:?}, then {:?}", device.name, ten / 10);
        // Nothing was compiled before the first; a cached answer takes microseconds.
        assert!(ten < first, "{}: {ten:?} after {first:?}", device.name);
    }
}

#[test]
fn measures_nothing_without_budget() {
    let _environment = environment("budget", None);
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let times = enough(&device, 100 * 1200);
        let case = |rows| Case::new(norm(&[rows * times, 1200], &[1], DType::F32), 5);
        // Any measurement exceeds the smallest budget.
        let within = |nanoseconds| StrategyChoice::TunedWithin(Duration::from_nanos(nanoseconds));
        let before = kept(device.name);
        case(100).check(&device, within(0)).unwrap();
        assert_eq!(kept(device.name), before, "{}", device.name);
        case(100).check(&device, StrategyChoice::Tuned).unwrap();
        let measured = kept(device.name);
        assert!(measured > before, "{}", device.name);
        case(300).check(&device, within(1)).unwrap();
        assert_eq!(kept(device.name), measured, "{}", device.name);
        case(300).check(&device, within(u64::MAX)).unwrap();
        assert!(kept(device.name) > measured, "{}", device.name);
    }
}

#[test]
fn imported_bundle_is_not_measured_again() {
    let _environment = environment("brought", None);
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let shape = large(&device, [80, 1700]);
        let case = Case::new(norm(&shape, &[1], DType::F32), 5);
        let tensors = case.tensors(&device.client);
        let ask_within = |budget| {
            let chosen = tuned_forward(&device.client, &case.desc, &tensors, budget);
            chosen.unwrap()
        };
        let ask = || {
            let start = Instant::now();
            (ask_within(Duration::MAX), start.elapsed())
        };
        let (chosen, first) = ask();
        let file = bundle(device.name).unwrap();
        // The other environment has the content of the file only.
        let (brought, again) = elsewhere(device.name, || {
            let report = cubecl::bundle::import(&*cubecl::bundle::open(&file).unwrap());
            assert!(report.imported > 0, "{}: {report:?}", device.name);
            // The budget is already exceeded, but a cached choice needs none.
            let kept = ask_within(Duration::from_nanos(1));
            assert_eq!(kept, chosen, "{}", device.name);
            ask()
        });
        fs::remove_file(&file).unwrap();
        assert_eq!(brought, chosen, "{}", device.name);
        assert!(
            4 * again < first,
            "{}: {again:?} after {first:?}",
            device.name
        );
    }
}

/// Number of cached choices in the active environment.
fn kept(name: &str) -> usize {
    let Some(file) = bundle(name) else {
        return 0;
    };
    let bundle = cubecl::bundle::open(&file).unwrap();
    let report = elsewhere(name, || cubecl::bundle::import(&*bundle));
    fs::remove_file(&file).unwrap();
    report.imported
}

/// Saves the active environment to a file. None if it is empty.
fn bundle(name: &str) -> Option<PathBuf> {
    let name = format!("cubenorm-{name}-{}.bundle", std::process::id());
    let file = std::env::temp_dir().join(name);
    let saved = environment::bundle().save(&file, BundleFormat::Sqlite);
    saved.ok().map(|_| file)
}

/// Runs `what` in a new environment.
fn elsewhere<T>(name: &str, what: impl FnOnce() -> T) -> T {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let before = environment::active();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    environment::activate(format!("elsewhere-{name}-{number}"));
    let result = what();
    environment::activate(before);
    result
}

#[test]
fn invalid_cache_file_is_not_fatal() {
    let _environment = environment("broken", Some(b"this is no database"));
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let shape = large(&device, [90, 1100]);
        let case = Case::new(norm(&shape, &[1], DType::F32), 5);
        case.check(&device, StrategyChoice::Tuned).unwrap();
        assert_eq!(&*environment::active(), "broken", "{}", device.name);
    }
}

/// Activates a CubeCL environment with an empty cache, or with a cache file of this content.
///
/// Environments are per process, so the guard admits one test at a time.
fn environment(name: &str, content: Option<&[u8]>) -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = std::env::temp_dir().join(format!("cubenorm-{name}-{}", std::process::id()));
    // An earlier process with the same id may have left files.
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    // The first access to CubeCL's configuration activates its environment, so it comes first.
    CubeClRuntimeConfig::get();
    environment::set_root(&root);
    environment::activate(name);
    if let Some(content) = content {
        fs::write(environment::path(), content).unwrap();
    }
    guard
}

#[cfg(feature = "burn")]
#[test]
fn layers_are_tuned_unless_tuning_is_off() {
    let _environment = environment("layers", None);
    use burn::tensor::{DType, Tensor};
    use cubenorm::Tuning;
    use cubenorm_tests::tensors::{devices, noise};

    cubenorm_tests::guard::leave_out();
    for (name, device) in devices() {
        let norm = cubenorm::nn::LayerNormConfig::new(768).init(&device);
        let forward = |x: Tensor<2>| -> Vec<f32> {
            let data = norm.forward(x).into_data();
            data.try_to_vec().expect("f32 in, f32 out")
        };
        let of_kernels = cubenorm_tests::device::devices();
        let of_kernels = of_kernels.into_iter().find(|it| it.name == name);
        let shape = of_kernels.map_or([120, 768], |device| large(&device, [120, 768]));
        let x = noise(shape, 3, &device);
        let has_choice = name != "flex";
        let before = kept(name);
        cubenorm::set_tuning(Tuning::Off);
        let analytic = forward(x.clone());
        assert_eq!(kept(name), before, "{name}: measured while it is off");
        cubenorm::set_tuning(Tuning::OnFirstCall);
        assert_eq!(cubenorm::tuning(), Tuning::OnFirstCall);
        cubenorm::warm_up(&[shape], DType::F32, &device, |x| {
            norm.forward(x);
        });
        assert_eq!(kept(name) > before, has_choice, "{name}: not warmed up");
        let tuned = forward(x);
        let largest = analytic.iter().zip(&tuned).map(|(a, b)| (a - b).abs());
        let largest = largest.fold(0.0, f32::max);
        assert!(largest < 1e-5, "{name}: {largest}");
    }
}
