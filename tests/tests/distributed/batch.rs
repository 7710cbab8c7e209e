//! Batch norm over several members against the f64 reference of the whole batch.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::store::ModuleRecord;
use burn::tensor::{DType, Device, Tensor};
use cubenorm::distributed::{Collective, InProcess};
use cubenorm::nn::{BatchNormConfig, SyncBatchNorm};
use cubenorm_core::{DType as CoreDType, Epsilon, NormDesc, Statistics, TensorDesc};
use cubenorm_tests::case::noise;
use cubenorm_tests::tensors::devices;

use crate::support::{
    LIMIT, all, allowed, assert_close, dtypes, expected, rounded, upload, values,
};

const EPSILON: f64 = 1e-3;
const MOMENTUM: f64 = 0.3;

/// A batch `[samples, channels, positions]` and the gradient of its output.
struct Batch {
    shape: [usize; 3],
    dtype: DType,
    input: Vec<f64>,
    dy: Vec<f64>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
}

/// Results of a member.
struct Part {
    output: Vec<f64>,
    dx: Vec<f64>,
    dgamma: Vec<f64>,
    dbeta: Vec<f64>,
    running: [Vec<f64>; 2],
}

impl Batch {
    /// Channels have means far from each other, so that the statistics of shards differ.
    fn new(shape: [usize; 3], dtype: DType, seed: u64) -> Self {
        let elements = 0..shape.iter().product();
        let channel = |at: usize| at / shape[2] % shape[1];
        let params = |salt: u64| (0..shape[1]).map(move |at| 0.5 * noise(seed ^ salt, at));
        let input = elements.clone().map(|at| {
            let offset = 4.0 * (channel(at) % 3) as f64 - 4.0;
            offset + 2.0 * noise(seed, at)
        });
        Self {
            input: rounded(input, dtype),
            dy: rounded(elements.map(|at| noise(seed ^ 0x51, at)), dtype),
            gamma: rounded(params(0x52).map(|x| 1.0 + x), DType::F32),
            beta: rounded(params(0x53), DType::F32),
            shape,
            dtype,
        }
    }

    /// Elements of these samples.
    fn samples<'a>(&self, values: &'a [f64], samples: &std::ops::Range<usize>) -> &'a [f64] {
        let size = self.shape[1] * self.shape[2];
        &values[samples.start * size..samples.end * size]
    }

    /// Runs both passes on members that have the samples between these limits.
    fn run(&self, limits: &[usize], device: &Device) -> Vec<Part> {
        all(limits.len() - 1, |rank, member| {
            self.part(limits, rank, device, member)
        })
    }

    /// Runs both passes on a member.
    fn part(
        &self,
        limits: &[usize],
        rank: usize,
        device: &Device,
        member: Arc<dyn Collective>,
    ) -> Part {
        let [_, channels, positions] = self.shape;
        let device = device.clone().autodiff();
        let samples = limits[rank]..limits[rank + 1];
        let shape = [samples.len(), channels, positions];
        let tensor =
            |values: &[f64]| upload(self.samples(values, &samples), shape, self.dtype, &device);
        let param = |values: &[f64]| {
            let tensor = upload(values, [channels], DType::F32, &device);
            Param::from_tensor(tensor.require_grad())
        };
        let norm = BatchNormConfig::new(channels)
            .with_epsilon(EPSILON)
            .with_momentum(MOMENTUM)
            .init(&device);
        let mut norm = SyncBatchNorm::from_batch_norm(norm, member);
        (norm.gamma, norm.beta) = (param(&self.gamma), param(&self.beta));
        let x = tensor(&self.input).require_grad();
        let y = norm.forward(x.clone());
        // The gradient of an f16 sum is 1, so that dy is the gradient of the output.
        let gradients = (y.clone() * tensor(&self.dy)).sum().backward();
        norm.sync_running_statistics();
        let grad = |param: &Param<Tensor<1>>| values(param.val().grad(&gradients).unwrap());
        Part {
            output: values(y),
            dx: values(x.grad(&gradients).unwrap()),
            dgamma: grad(&norm.gamma),
            dbeta: grad(&norm.beta),
            running: [&norm.running_mean, &norm.running_var].map(|it| values(it.value())),
        }
    }

    /// Compares the parts of all members with the whole batch.
    fn check(&self, limits: &[usize], device: &Device, at: &str) {
        self.check_parts(&self.run(limits, device), limits, at);
    }

    fn check_parts(&self, parts: &[Part], limits: &[usize], at: &str) {
        let [samples, channels, positions] = self.shape;
        let at = &format!("{at} {:?} {:?} split at {limits:?}", self.shape, self.dtype);
        let param = || TensorDesc::contiguous([channels, 1], CoreDType::F64);
        let desc = NormDesc::new(
            TensorDesc::contiguous(self.shape, CoreDType::F64),
            [0, 2],
            Statistics::MeanVariance,
        )
        .with_epsilon(Epsilon::InsideSqrt(EPSILON))
        .with_scale(param())
        .with_bias(param());
        let tensors = [&self.input, &self.gamma, &self.beta, &self.dy].map(Vec::as_slice);
        let expected = expected(desc, tensors, channels, |channel| channel * positions);
        let forward = &expected.forward;
        let cols = samples * positions;
        let largest = |values: &[f64]| values.iter().fold(1.0f64, |a, x| a.max(x.abs()));
        // Inputs are within 6, so a rounding of the mean has the weight of 6 deviations.
        let rstd = largest(&forward.rstd);
        let magnitude = 6.0 * rstd * 1.5;
        let through = magnitude * rstd * largest(&forward.output);

        let joined =
            |of: fn(&Part) -> &Vec<f64>| parts.iter().flat_map(of).copied().collect::<Vec<f64>>();
        let off = |magnitude: f64| move |_, value: f64| allowed(self.dtype, cols, magnitude, value);
        let output = joined(|part| &part.output);
        assert_close(
            &format!("{at}: output"),
            &output,
            &forward.output,
            off(magnitude),
        );
        let dx = joined(|part| &part.dx);
        assert_close(
            &format!("{at}: dx"),
            &dx,
            &expected.gradients.input,
            off(through),
        );

        for (rank, part) in parts.iter().enumerate() {
            let at = &format!("{at}, rank {rank}");
            let statistics = |values: &[f64], first: f64| {
                let of_channel = |channel: usize| {
                    (1.0 - MOMENTUM) * first + MOMENTUM * values[channel * positions]
                };
                (0..channels).map(of_channel).collect::<Vec<f64>>()
            };
            let [mean, variance] = &part.running;
            let off = |_, value: f64| allowed(DType::F32, cols, 6.0, value);
            let should = statistics(&forward.mean, 0.0);
            assert_close(&format!("{at}: running mean"), mean, &should, off);
            let should = statistics(&forward.variance, 1.0);
            assert_close(&format!("{at}: running variance"), variance, &should, off);

            // Gradients of the parameters are sums over this member's samples.
            let own = limits[rank] * channels * positions..limits[rank + 1] * channels * positions;
            let (mut dgamma, mut dbeta) = (vec![0.0; channels], vec![0.0; channels]);
            for place in own {
                let channel = place / positions % channels;
                let xhat = (self.input[place] - forward.mean[place]) * forward.rstd[place];
                dgamma[channel] += self.dy[place] * xhat;
                dbeta[channel] += self.dy[place];
            }
            let off =
                |_, value: f64| allowed(DType::F32, cols, magnitude * (cols as f64).sqrt(), value);
            assert_close(&format!("{at}: dgamma"), &part.dgamma, &dgamma, off);
            assert_close(&format!("{at}: dbeta"), &part.dbeta, &dbeta, off);
        }
    }
}

#[test]
fn two_parts_equal_one_batch() {
    for (name, device) in devices() {
        for dtype in dtypes(name, &device) {
            for (seed, shape) in [[6, 5, 12], [9, 16, 49], [2, 3, 1]].into_iter().enumerate() {
                let batch = Batch::new(shape, dtype, seed as u64);
                let samples = shape[0];
                // No sample, one, and random splits.
                let random = |salt| {
                    let part = 0.5 + 0.5 * noise(salt, seed);
                    (part * (samples + 1) as f64) as usize
                };
                let mut splits = vec![0, 1, samples - 1, samples, random(1), random(2)];
                splits.sort_unstable();
                splits.dedup();
                for split in splits {
                    batch.check(&[0, split.min(samples), samples], &device, name);
                }
            }
        }
    }
}

#[cfg(feature = "cuda")]
use cubenorm::distributed::BurnCollective;

#[cfg(feature = "cuda")]
use crate::support::{run_on, unwrapped};

/// Two GPUs, if the machine and the selection have them.
#[cfg(feature = "cuda")]
fn two_gpus() -> Option<Vec<Device>> {
    let is_selected = devices().iter().any(|(name, _)| *name == "cuda");
    let gpus = Device::enumerate(burn::tensor::DeviceType::Cuda);
    let gpus: Vec<Device> = gpus.into_iter().take(2).collect();
    if !is_selected || gpus.len() < 2 {
        println!("skipped: {} GPUs under CUDA, expected 2", gpus.len());
        return None;
    }
    Some(gpus)
}

/// Burn's collective exchanges the numbers of GPUs by NCCL.
#[cfg(feature = "cuda")]
#[test]
fn parts_on_gpus_of_their_own_equal_one_batch() {
    let Some(gpus) = two_gpus() else {
        return;
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (seed, (shape, split)) in [([6, 5, 12], 2), ([9, 16, 49], 9), ([64, 256, 196], 32)]
            .into_iter()
            .enumerate()
        {
            let batch = Batch::new(shape, dtype, seed as u64);
            let limits = [0, split, shape[0]];
            let group = BurnCollective::group(gpus.clone(), LIMIT).expect("they are two GPUs");
            let parts = run_on(group, |rank, member| {
                batch.part(&limits, rank, &gpus[rank], member)
            });
            batch.check_parts(&unwrapped(parts), &limits, "two GPUs");
        }
    }
}

/// Prints the time of both passes, for a comparison with other libraries.
#[cfg(feature = "cuda")]
#[test]
#[ignore = "prints times: cargo test -p cubenorm-tests --features burn,cuda --test distributed -- --ignored --nocapture measure"]
fn measure_two_gpus() {
    use std::time::Instant;

    cubenorm_tests::guard::leave_out_everywhere();
    let Some(gpus) = two_gpus() else {
        return;
    };
    for dtype in [DType::F32, DType::F16] {
        let group = BurnCollective::group(gpus.clone(), LIMIT).expect("they are two GPUs");
        let times = run_on(group, |rank, member| {
            let device = gpus[rank].clone().autodiff();
            let norm = BatchNormConfig::new(256).init(&device);
            let norm = SyncBatchNorm::from_batch_norm(norm, member);
            let x = Tensor::<4>::zeros([32, 256, 56, 56], (&device, dtype)).require_grad();
            let dy = Tensor::<4>::ones([32, 256, 56, 56], (&device, dtype));
            let step = |_| {
                device.sync().expect("the device runs");
                let start = Instant::now();
                let y = norm.forward(x.clone());
                let gradients = (y * dy.clone()).sum().backward();
                device.sync().expect("the device runs");
                let time = start.elapsed();
                drop(gradients);
                time
            };
            let mut times: Vec<_> = (0..30).map(step).skip(5).collect();
            times.sort_unstable();
            times[times.len() / 2]
        });
        println!(
            "two GPUs, [32, 256, 56, 56] each, {dtype:?}: {:?}",
            unwrapped(times)
        );
    }
}

#[test]
fn three_parts_equal_one_batch() {
    for (name, device) in devices() {
        let batch = Batch::new([7, 4, 10], DType::F32, 11);
        for limits in [[0, 2, 3, 7], [0, 0, 7, 7], [0, 1, 2, 7]] {
            batch.check(&limits, &device, name);
        }
    }
}

#[test]
fn shards_with_far_means_keep_their_digits() {
    // Means of 2,000 deviations: E[x^2] - E[x]^2 would have no digit left. A mean in f32 is off by 1e-4 itself.
    for (name, device) in devices() {
        let shape = [8, 2, 32];
        let mut batch = Batch::new(shape, DType::F32, 12);
        let far = batch.input.iter().map(|x| 2048.0 + x * 0.25);
        batch.input = rounded(far, DType::F32);
        let parts = batch.run(&[0, 3, 8], &device);
        let channel = |channel: usize| {
            let all = (0..8 * 32).map(move |at| (at / 32 * 2 + channel) * 32 + at % 32);
            all.map(|at| batch.input[at]).collect::<Vec<f64>>()
        };
        for part in parts {
            for (at, running) in part.running[1].iter().enumerate() {
                let values = channel(at);
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let squares = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                let should = 1.0 - MOMENTUM + MOMENTUM * squares / values.len() as f64;
                let error = (running - should).abs();
                assert!(error < 1e-4, "{name}: {running}, expected {should}");
            }
        }
    }
}

#[test]
fn empty_batches_keep_running_statistics() {
    for (name, device) in devices() {
        let batch = Batch::new([0, 3, 5], DType::F32, 13);
        for part in batch.run(&[0, 0, 0], &device) {
            assert_eq!(part.running, [vec![0.0; 3], vec![1.0; 3]], "{name}");
            assert_eq!(part.dgamma, [0.0; 3], "{name}");
        }
    }
}

#[test]
fn sum_of_two_half_precision_dtypes_is_exchanged_in_f32() {
    // The sum of 3,000 gradients of 1 is no f16 beyond 2,048 that all members agree on.
    for (name, device) in devices() {
        for dtype in dtypes(name, &device) {
            let mut batch = Batch::new([4, 2, 1500], dtype, 14);
            batch.dy = vec![1.0; batch.dy.len()];
            let parts = batch.run(&[0, 2, 4], &device);
            for part in parts {
                assert_eq!(part.dbeta, [3000.0, 3000.0], "{name} {dtype:?}");
            }
        }
    }
}

#[test]
fn records_load_from_and_into_batch_norm() {
    for (name, device) in devices() {
        let saved = |record: ModuleRecord| {
            let bytes = record.into_bytes().unwrap();
            ModuleRecord::from_bytes(bytes).unwrap()
        };
        let config = BatchNormConfig::new(3).with_momentum(MOMENTUM);
        let training = device.clone().autodiff();
        let trained = config.init(&training);
        trained.forward(upload(
            &[1.0, 2.0, 3.0, 5.0, 7.0, 9.0],
            [2, 3],
            DType::F32,
            &training,
        ));
        let trained = trained.valid();
        let x = upload(&[0.5, -2.0, 4.0], [1, 3], DType::F32, &device);
        let expected = values(trained.forward(x.clone()));
        let member = InProcess::group(1, LIMIT).remove(0);
        let sync = SyncBatchNorm::from_batch_norm(config.init(&device), Arc::new(member));
        let sync = sync.load_record(saved(trained.clone().into_record()));
        assert_eq!(
            values(sync.forward(x.clone())),
            expected,
            "{name}: from BatchNorm"
        );
        let back = config
            .init(&device)
            .load_record(saved(sync.clone().into_record()));
        assert_eq!(
            values(back.forward(x.clone())),
            expected,
            "{name}: to BatchNorm"
        );
        let burns = burn::nn::BatchNormConfig::new(3).init(&device);
        let burns = burns.load_record(saved(sync.clone().into_record()));
        let close = |_: usize, _: f64| 1e-5;
        let actual = values(burns.forward(x.clone()));
        assert_close(&format!("{name}: to Burn"), &actual, &expected, close);
        assert!(format!("{sync}").contains("members: 1"), "{sync}");
    }
}

#[test]
fn frozen_input_and_parameters_train() {
    // Nothing but beta is tracked, then nothing but the input.
    for (name, device) in devices() {
        let device = device.autodiff();
        let x = || upload(&[1.0, 2.0, 4.0, 8.0], [4, 1], DType::F32, &device);
        all(2, |_, member| {
            let beta = Tensor::<1>::zeros([1], &device).require_grad();
            let gamma = Tensor::<1>::ones([1], &device);
            let result =
                cubenorm::sync_batch_norm_train(x(), gamma.clone(), beta.clone(), EPSILON, &member);
            let gradients = result.output.sum().backward();
            assert_eq!(values(beta.grad(&gradients).unwrap()), [4.0], "{name}");

            let x = x().require_grad();
            let result = cubenorm::sync_batch_norm_train(x.clone(), None, None, EPSILON, &member);
            let gradients = (result.output * x.clone().detach()).sum().backward();
            let dx = values(x.grad(&gradients).unwrap());
            assert!(dx.iter().any(|dx| dx.abs() > 1e-6), "{name}: {dx:?}");
            // Nothing is tracked.
            let untracked = x.inner();
            let result =
                cubenorm::sync_batch_norm_train(untracked, gamma.inner(), None, EPSILON, &member);
            assert!(!result.output.is_autodiff());
        });
    }
}
