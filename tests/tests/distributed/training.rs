//! Training of two members, watched.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use burn::module::Param;
use burn::tensor::activation::silu;
use burn::tensor::{DType, Device, Tensor};
use cubenorm::distributed::Collective;
use cubenorm::nn::{BatchNorm, BatchNormConfig, SyncBatchNorm};
use cubenorm_tests::case::noise;
use cubenorm_tests::tensors::devices;

use crate::support::{all, upload, values};

/// Steps of the training: a deadlock shows in many.
const STEPS: usize = 500;
/// Longest training, on a loaded machine with two cores and lavapipe.
const WATCHDOG: Duration = Duration::from_secs(900);
/// Features of the input and of the hidden layer.
const SIZES: [usize; 2] = [4, 8];
/// Samples of all members.
const BATCH: usize = 12;
const RATE: f64 = 0.05;

/// Ends the process if `work` does not end in time: a deadlock has no panic that a test could catch.
fn watched<T>(work: impl FnOnce() -> T) -> T {
    let (done, watchdog) = channel::<()>();
    let watch = thread::spawn(move || {
        if watchdog.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the training is still running after {WATCHDOG:?}");
            std::process::abort();
        }
    });
    let result = work();
    drop(done);
    watch.join().unwrap();
    result
}

/// Two layers with a norm between them, as parameters of one member.
struct Network<N> {
    weights: [Tensor<2>; 2],
    norm: N,
}

trait Norm {
    fn params(&mut self) -> [&mut Param<Tensor<1>>; 2];
    fn apply(&self, x: Tensor<2>) -> Tensor<2>;
}

impl Norm for BatchNorm {
    fn params(&mut self) -> [&mut Param<Tensor<1>>; 2] {
        [&mut self.gamma, &mut self.beta]
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.forward(x)
    }
}

impl Norm for SyncBatchNorm {
    fn params(&mut self) -> [&mut Param<Tensor<1>>; 2] {
        [&mut self.gamma, &mut self.beta]
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.forward(x)
    }
}

fn random(shape: [usize; 2], seed: u64, device: &Device) -> Tensor<2> {
    let numbers: Vec<f64> = (0..shape[0] * shape[1]).map(|at| noise(seed, at)).collect();
    upload(&numbers, shape, DType::F32, device)
}

/// Inputs and targets of some samples of a step.
fn samples(step: usize, range: std::ops::Range<usize>, device: &Device) -> [Tensor<2>; 2] {
    let [features, _] = SIZES;
    let x = random([BATCH, features], 100 + step as u64 % 8, device);
    let target = x.clone().slice([0..BATCH, 0..1]) * x.clone().slice([0..BATCH, 1..2]);
    [x, target].map(|tensor| tensor.slice([range.clone()]))
}

impl<N: Norm> Network<N> {
    fn new(norm: N, device: &Device) -> Self {
        let [features, hidden] = SIZES;
        let weights = [([features, hidden], 1), ([hidden, 1], 2)];
        Self {
            weights: weights.map(|(shape, seed)| random(shape, seed, device).require_grad()),
            norm,
        }
    }

    /// Sum of the squared errors.
    fn loss(&self, [x, target]: [Tensor<2>; 2]) -> Tensor<1> {
        let [first, second] = self.weights.clone();
        let hidden = silu(self.norm.apply(x.matmul(first)));
        let error = hidden.matmul(second) - target;
        (error.clone() * error).sum()
    }

    /// One step, with gradients that `reduce` sums over the members after the backward pass.
    fn step(&mut self, samples: [Tensor<2>; 2], reduce: impl Fn(Tensor<1>) -> Tensor<1>) -> f64 {
        let loss = self.loss(samples);
        let gradients = loss.backward();
        let mut flat: Vec<Tensor<1>> = (self.weights.iter())
            .map(|weight| weight.grad(&gradients).unwrap().flatten::<1>(0, 1))
            .collect();
        for param in self.norm.params() {
            flat.push(param.val().grad(&gradients).unwrap());
        }
        flat.push(loss.inner());
        let mut sizes: Vec<usize> = flat.iter().map(|tensor| tensor.dims()[0]).collect();
        let sums = reduce(Tensor::cat(flat, 0));
        let mut begin = 0;
        let mut next = || {
            let size = sizes.remove(0);
            begin += size;
            sums.clone().slice(begin - size..begin) / BATCH as f64
        };
        for weight in &mut self.weights {
            let step = next().reshape(weight.dims()) * RATE;
            *weight = (weight.clone().inner() - step).autodiff().require_grad();
        }
        for param in self.norm.params() {
            let moved = param.val().inner() - next() * RATE;
            *param = Param::from_tensor(moved.autodiff().require_grad());
        }
        values(next())[0]
    }
}

/// Losses, and the weights after the last step.
fn train<N: Norm>(
    norm: N,
    range: std::ops::Range<usize>,
    steps: usize,
    device: &Device,
    reduce: impl Fn(Tensor<1>) -> Tensor<1>,
) -> (Vec<f64>, Vec<f64>) {
    let mut network = Network::new(norm, device);
    let losses = (0..steps)
        .map(|step| network.step(samples(step, range.clone(), device), &reduce))
        .collect();
    let weights = network.weights.map(values);
    (losses, weights.concat())
}

#[test]
fn two_members_train_for_500_steps() {
    let norm = |device: &Device| BatchNormConfig::new(SIZES[1]).init(device);
    for (name, device) in devices() {
        // CubeCL has cores of its own for each member's stream there, which wait for each other in loops.
        if name == "cpu" {
            println!("skipped on cpu: two cores take minutes for a few steps of two streams");
            continue;
        }
        let device = device.autodiff();
        let (results, alone) = watched(|| {
            let members = all(2, |rank, member: Arc<dyn Collective>| {
                let range = [0..5, 5..BATCH][rank].clone();
                let sync = SyncBatchNorm::from_batch_norm(norm(&device), member.clone());
                train(sync, range, STEPS, &device, |tensor| {
                    member.all_reduce(tensor).unwrap()
                })
            });
            let alone = train(norm(&device), 0..BATCH, 20, &device, |tensor| tensor);
            (members, alone)
        });
        let [(losses, weights), (other_losses, other_weights)] = &results[..] else {
            panic!("two members have results");
        };
        assert_eq!(losses, other_losses, "{name}: members see one loss");
        assert_eq!(weights, other_weights, "{name}: members have equal weights");
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let (first, last) = (mean(&losses[..8]), mean(&losses[STEPS - 8..]));
        assert!(last < 0.2 * first, "{name}: {first} to {last}");
        for (step, (loss, alone)) in losses.iter().zip(&alone.0).enumerate() {
            let error = (loss - alone).abs();
            assert!(
                error < 1e-4 * (1.0 + alone),
                "{name} step {step}: {loss}, alone {alone}"
            );
        }
    }
}
