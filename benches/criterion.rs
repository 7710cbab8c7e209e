//! The quick suite under criterion, on the device that `BURN_DEVICE` names.
//!
//! For the history of one provider over time. To compare providers use `cargo xtask bench`, which
//! interleaves them in processes of their own.

use std::time::Duration;

use burn::tensor::Device;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubenorm_bench::{Provider, Suite, prepare, providers::lacks};

const WARM_UP: Duration = Duration::from_millis(100);

fn norms(criterion: &mut Criterion) {
    let device = Device::default();
    for problem in Suite::Quick.problems() {
        let mut group = criterion.benchmark_group(problem.op.to_string());
        group.throughput(Throughput::Bytes(problem.bytes() as u64));
        group.sample_size(10).warm_up_time(WARM_UP);
        // A probe answers once, so that it has no history of samples.
        for provider in [
            Provider::Cubenorm,
            Provider::Burn,
            Provider::Elementwise,
            Provider::Copy,
        ] {
            if lacks(provider, &problem).is_some() {
                continue;
            }
            let what = format!("{:?} {:?} {:?}", problem.shape, problem.dtype, problem.pass);
            let id = BenchmarkId::new(provider.to_string(), what);
            // Set up only when criterion's filter asks for it.
            let mut prepared = None;
            group.bench_function(id, |bencher| {
                let set_up = prepared.get_or_insert_with(|| {
                    let prepared = prepare(provider, &problem, &device);
                    // Burn's batch norm is wrong on some drivers.
                    prepared.inspect_err(|error| {
                        eprintln!("left out: {provider}, {problem}: {error:#}");
                    })
                });
                let Ok(prepared) = set_up else {
                    // Criterion wants times, and warms up until enough of it is over.
                    return bencher.iter_custom(|runs| {
                        std::thread::sleep(WARM_UP);
                        Duration::from_nanos(runs)
                    });
                };
                bencher.iter_custom(|runs| {
                    prepared
                        .time(runs as usize)
                        .expect("a run that was checked runs again")
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, norms);
criterion_main!(benches);
