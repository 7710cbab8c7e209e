//! The quick suite under criterion, on the device that `BURN_DEVICE` names.
//!
//! For the history of one contender over time. To compare contenders use `cargo xtask bench`, which
//! interleaves them in processes of their own.

use std::time::Duration;

use burn::tensor::Device;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubenorm_bench::{Suite, contenders::Contender, prepare};

fn norms(criterion: &mut Criterion) {
    let device = Device::default();
    for problem in Suite::Quick.problems() {
        let mut group = criterion.benchmark_group(problem.op.to_string());
        group.throughput(Throughput::Bytes(problem.bytes() as u64));
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100));
        // A probe answers once, so that it has no history of samples.
        for contender in Contender::ALL
            .into_iter()
            .filter(|&c| c != Contender::Probe)
        {
            // Set up only when criterion's filter asks for it.
            let mut prepared = None;
            let id = BenchmarkId::new(contender.to_string(), format!("{:?}", problem.shape));
            group.bench_function(id, |bencher| {
                let prepared = prepared.get_or_insert_with(|| {
                    prepare(contender, &problem, &device)
                        .unwrap_or_else(|error| panic!("{contender}, {problem}: {error:#}"))
                });
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
