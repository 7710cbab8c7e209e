//! Ordered runs are separate kernels, though Burn's fusion would merge them.
#![cfg(feature = "cpu")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use burn::tensor::{Device, Tensor};
use cubecl::logging::{LaunchObservation, LaunchObserver};
use cubenorm_bench::fusion::after;

#[derive(Default)]
struct Launches(AtomicUsize);

impl LaunchObserver for Launches {
    fn launched(&self, _: &'static str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Number of kernels of `runs` additions, each after the one before it if `in_order`.
fn launches(runs: usize, device: &Device, in_order: bool) -> usize {
    let inputs: Vec<Tensor<1>> = (0..runs)
        .map(|run| Tensor::from_floats([run as f32; 64], device))
        .collect();
    device.sync().expect("the device works");
    let launches = Arc::new(Launches::default());
    let observation = LaunchObservation::new(launches.clone());
    let mut kept: Vec<Tensor<1>> = Vec::new();
    for input in &inputs {
        let input = match kept.last() {
            Some(before) if in_order => after(input.clone(), before.clone()),
            _ => input.clone(),
        };
        kept.push(input.add_scalar(1.0));
    }
    device.sync().expect("the device works");
    drop(observation);
    for (run, output) in kept.into_iter().enumerate() {
        let read: Vec<f32> = output.into_data().try_into_vec().expect("numbers");
        assert_eq!(read, [run as f32 + 1.0; 64]);
    }
    launches.0.load(Ordering::Relaxed)
}

#[test]
fn ordered_runs_are_separate_kernels() {
    let device = Device::cpu();
    for runs in [2, 5, 24] {
        // Without an order, fusion makes one kernel of independent operations.
        assert!(launches(runs, &device, false) < runs);
        // Again, when fusion knows what comes.
        for _ in 0..3 {
            assert_eq!(launches(runs, &device, true), runs);
        }
    }
}
