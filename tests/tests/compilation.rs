//! Each plan is compiled once. The test counts entries of CubeCL's compilation log, which is per
//! process, and therefore has its own binary.

use cubecl::config::compilation::CompilationLogLevel;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubenorm_core::{DType, Epsilon, NormDesc, Statistics, TensorDesc};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::devices;

#[test]
fn second_call_with_the_same_plan_compiles_nothing() {
    let log = std::env::temp_dir().join(format!("cubenorm-compilation-{}", std::process::id()));
    let mut config = CubeClRuntimeConfig::default();
    config.compilation.logger.level = CompilationLogLevel::Basic;
    config.compilation.logger.file = Some(log.clone());
    // A kernel from an earlier process would not be logged as compiled.
    config.compilation.cache = false;
    CubeClRuntimeConfig::set(config);
    let compiled = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches("normalize").count()
    };

    let of = |rows: usize, cols: usize, epsilon: f64| {
        let input = TensorDesc::contiguous([rows, cols], DType::F32);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_epsilon(Epsilon::InsideSqrt(epsilon))
            .with_scale(TensorDesc::contiguous([cols], DType::F32));
        Case::new(desc, 1)
    };
    for device in devices() {
        if device.client.properties().hardware.num_cpu_cores.is_some() {
            println!(
                "{}: skipped, the runtime writes no compilation log",
                device.name
            );
            continue;
        }
        let run = |case: &Case| case.check(&device, Default::default()).unwrap();
        let before = compiled();
        run(&of(64, 256, 1e-5));
        let first = compiled();
        assert!(
            first > before,
            "{}: the first call compiles a kernel",
            device.name
        );
        run(&of(64, 256, 1e-5));
        // Epsilon and the number of rows are not part of the plan.
        run(&of(64, 256, 0.5));
        run(&of(60, 256, 1e-5));
        assert_eq!(compiled(), first, "{}: compiled again", device.name);
    }
    let _ = std::fs::remove_file(&log);
}
