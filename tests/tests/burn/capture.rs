//! Graph capture: every function and layer records, and replays on new contents of its input.
//!
//! On CUDA, ROCm and wgpu a replay runs a recorded graph. Elsewhere Burn runs the closure again.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::{Backend, Dispatch};
use burn::module::Module;
use burn::tensor::{Device, Tensor, capture};
use cubenorm::nn::{
    AdaLayerNormConfig, AddLayerNorm, AddRmsNorm, BatchNormConfig, GroupNormConfig,
    InstanceNormConfig, LayerNormConfig, MeanVarianceNormConfig, RmsNormConfig,
};
use cubenorm::{Activation, Lp, MeanVarianceOptions};

use cubenorm_tests::guard;

use crate::{devices, noise};

/// Devices that record graphs.
const RECORDING: [&str; 3] = ["cuda", "rocm", "wgpu"];

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let elements = tensor.shape().num_elements();
    tensor.reshape([elements])
}

fn bits(tensors: &[Tensor<1>]) -> Vec<Vec<u32>> {
    let bits = |tensor: &Tensor<1>| {
        let data = tensor.clone().into_data();
        let values = data.try_to_vec::<f32>().expect("results are f32");
        values.into_iter().map(f32::to_bits).collect()
    };
    tensors.iter().map(bits).collect()
}

/// One test records at a time: CUDA records no graph while another thread allocates.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDING: Mutex<()> = Mutex::new(());
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason that a device records no graph of a call, which `capture` leaves out.
fn refusal<T>(device: &Device, call: impl Fn() -> T) -> Option<String> {
    let device = device.as_dispatch();
    let told = |error: &dyn std::fmt::Debug| Some(format!("{error:?}"));
    if let Err(error) = Dispatch::graph_prepare(device) {
        return told(&error);
    }
    for _ in 0..3 {
        let kept = call();
        Dispatch::sync(device).expect("the device works");
        drop(kept);
    }
    if let Err(error) = Dispatch::graph_start_capture(device) {
        return told(&error);
    }
    let kept = call();
    let stopped = Dispatch::graph_stop_capture(device);
    drop(kept);
    stopped.err().and_then(|error| told(&error))
}

/// Records a call, writes new contents into the input's buffer, replays, and compares with a call on these contents.
///
/// Where a graph is recorded, guards of the memory are left out: the host writes and reads them.
#[track_caller]
fn replays<const D: usize>(
    name: &str,
    device: &Device,
    shape: [usize; D],
    call: impl Fn(Tensor<D>) -> Vec<Tensor<1>>,
) {
    let records = RECORDING.contains(&name);
    if records {
        guard::leave_out_everywhere();
    }
    let input = RefCell::new(noise(shape, 1, device));
    let mut graph = capture(device, || call(input.borrow().clone()));
    if graph.is_hardware() != records {
        let refused = refusal(device, || call(input.borrow().clone()));
        panic!("{name}: expected a recorded graph to be {records}: {refused:?}");
    }
    let first = call(input.borrow().clone());
    // SAFETY: As below. CUDA runs nothing while it records.
    let recorded = unsafe { graph.replay() };
    assert_eq!(bits(recorded), bits(&first), "{name}: recorded");
    let refreshed = noise(shape, 2, device);
    let whole = shape.map(|size| 0..size);
    input
        .borrow_mut()
        .inplace(|input| input.slice_assign(whole, refreshed.clone()));
    // SAFETY: All tensors that the call reads are alive, and only this thread uses them.
    let replayed = unsafe { graph.replay() };
    let eager = call(refreshed);
    assert_ne!(bits(&eager), bits(&first), "{name}: the contents are new");
    assert_eq!(bits(replayed), bits(&eager), "{name}: replayed");
}

#[test]
fn functions_replay_the_bits_of_a_call() {
    let _alone = alone();
    for (name, device) in devices() {
        let device = &device;
        let row = |seed| noise([48], seed, device);
        let channel = |seed| noise([6], seed, device);
        let (gamma, beta) = (row(3), row(4));
        replays(name, device, [5, 48], |x| {
            let (gamma, beta) = (gamma.clone(), beta.clone());
            vec![flat(cubenorm::layer_norm(x, gamma, beta, 1e-5))]
        });
        replays(name, device, [5, 48], |x| {
            vec![flat(cubenorm::rms_norm(x, gamma.clone(), 1e-5))]
        });
        let residual = noise([5, 48], 5, device);
        replays(name, device, [5, 48], |x| {
            let (y, sum) =
                cubenorm::add_layer_norm(x, residual.clone(), gamma.clone(), beta.clone(), 1e-5);
            vec![flat(y), flat(sum)]
        });
        replays(name, device, [5, 48], |x| {
            let (y, sum) = cubenorm::add_rms_norm(x, residual.clone(), gamma.clone(), 1e-5);
            vec![flat(y), flat(sum)]
        });
        let (scale, bias) = (channel(6), channel(7));
        let (mean, variance) = (channel(8), channel(9).abs() + 0.5);
        replays(name, device, [2, 6, 4, 5], |x| {
            vec![flat(cubenorm::instance_norm(
                x,
                scale.clone(),
                bias.clone(),
                1e-5,
            ))]
        });
        replays(name, device, [2, 6, 4, 5], |x| {
            vec![flat(cubenorm::group_norm(
                x,
                scale.clone(),
                bias.clone(),
                3,
                1e-5,
            ))]
        });
        replays(name, device, [2, 6, 4, 5], |x| {
            let (mean, variance) = (mean.clone(), variance.clone());
            vec![flat(cubenorm::batch_norm(
                x,
                scale.clone(),
                bias.clone(),
                mean,
                variance,
                1e-5,
            ))]
        });
        replays(name, device, [2, 6, 4, 5], |x| {
            let result = cubenorm::batch_norm_train(x, scale.clone(), bias.clone(), 1e-5);
            vec![flat(result.output), result.mean, result.variance]
        });
        let rows = noise([2, 48], 10, device);
        replays(name, device, [2, 3, 48], |x| {
            vec![flat(cubenorm::ada_layer_norm(
                x,
                rows.clone(),
                rows.clone(),
                1e-5,
            ))]
        });
        let options = MeanVarianceOptions::new([1, 2]).with_activation(Activation::Silu);
        replays(name, device, [4, 3, 48], |x| {
            vec![flat(cubenorm::mean_variance_norm(x, None, None, &options))]
        });
        replays(name, device, [4, 3, 48], |x| {
            let result = cubenorm::mean_variance_norm_with_statistics(x, None, None, &options);
            vec![flat(result.output), flat(result.mean), flat(result.rstd)]
        });
        let whole = |tensor: &Tensor<1>| tensor.clone().reshape([1, 6, 1, 1]);
        replays(name, device, [2, 6, 4, 5], |x| {
            vec![flat(cubenorm::broadcast_batch_norm(
                x,
                whole(&mean),
                whole(&variance),
                whole(&scale),
                whole(&bias),
                1e-5,
                Activation::Relu,
            ))]
        });
        for p in [Lp::L1, Lp::L2] {
            replays(name, device, [5, 48], |x| {
                vec![flat(cubenorm::lp_norm(x, p, 1))]
            });
        }
    }
}

#[test]
fn long_and_many_rows_replay_the_bits_of_a_call() {
    let _alone = alone();
    for (name, device) in devices() {
        for shape in [[2, 40_000], [3000, 64]] {
            replays(name, &device, shape, |x| {
                vec![flat(cubenorm::layer_norm(x, None, None, 1e-5))]
            });
        }
    }
}

#[test]
fn layers_replay_the_bits_of_a_call() {
    let _alone = alone();
    for (name, device) in devices() {
        let device = &device;
        let layer = LayerNormConfig::new(48).init(device);
        replays(name, device, [5, 48], |x| vec![flat(layer.forward(x))]);
        let rms = RmsNormConfig::new(48).init(device);
        replays(name, device, [5, 48], |x| vec![flat(rms.forward(x))]);
        let residual = noise([5, 48], 5, device);
        let added = AddLayerNorm::from(layer);
        replays(name, device, [5, 48], |x| {
            let (y, sum) = added.forward(x, residual.clone());
            vec![flat(y), flat(sum)]
        });
        let added = AddRmsNorm::from(rms);
        replays(name, device, [5, 48], |x| {
            let (y, sum) = added.forward(x, residual.clone());
            vec![flat(y), flat(sum)]
        });
        let instance = InstanceNormConfig::new(6).init(device);
        replays(name, device, [2, 6, 4, 5], |x| {
            vec![flat(instance.forward(x))]
        });
        let group = GroupNormConfig::new(3, 6).init(device);
        replays(name, device, [2, 6, 4, 5], |x| vec![flat(group.forward(x))]);
        let batch = BatchNormConfig::new(6).init(device);
        replays(name, device, [2, 6, 4, 5], |x| vec![flat(batch.forward(x))]);
        let rows = noise([2, 48], 10, device);
        let ada = AdaLayerNormConfig::new(48, 48).init(device);
        replays(name, device, [2, 3, 48], |x| {
            vec![flat(ada.forward(x, rows.clone()))]
        });
        let general = MeanVarianceNormConfig::new(vec![1, 2]).init::<3>();
        replays(name, device, [4, 3, 48], |x| vec![flat(general.forward(x))]);
    }
}

/// Gradients of the input and of all parameters of a layer.
macro_rules! gradients {
    ($layer:expr, $x:expr, [$($param:ident),*]) => {{
        let x = $x.require_grad();
        let y = $layer.forward(x.clone());
        // Not the sum itself, whose gradient is zero.
        let gradients = (y.clone() * y).sum().backward();
        let dx = x.grad(&gradients).expect("it is tracked");
        vec![
            flat(dx),
            $( flat($layer.$param.val().grad(&gradients).expect("it is tracked")) ),*
        ]
    }};
}

#[test]
fn backward_passes_replay_the_bits_of_a_call() {
    let _alone = alone();
    for (name, device) in devices() {
        let plain = &device;
        let device = &device.clone().autodiff();
        let tracked = |x: Tensor<2>| x.autodiff();
        let maps = |x: Tensor<4>| x.autodiff();
        let rms = RmsNormConfig::new(48).init(device);
        replays(name, plain, [5, 48], |x| {
            gradients!(rms, tracked(x), [gamma])
        });
        let layer = LayerNormConfig::new(48).with_bias(false).init(device);
        replays(name, plain, [5, 48], |x| {
            gradients!(layer, tracked(x), [gamma])
        });
        // Rows that are split into parts, forward and backward.
        let long = RmsNormConfig::new(40_000).init(device);
        replays(name, plain, [2, 40_000], |x| {
            gradients!(long, tracked(x), [gamma])
        });
        let group = GroupNormConfig::new(3, 6).with_affine(false).init(device);
        replays(name, plain, [2, 6, 4, 5], |x| {
            gradients!(group, maps(x), [])
        });
        let instance = InstanceNormConfig::new(6).with_affine(false).init(device);
        replays(name, plain, [2, 6, 4, 5], |x| {
            gradients!(instance, maps(x), [])
        });
        // Frozen: in training, the running statistics would change in each replay.
        let batch = BatchNormConfig::new(6).init(device).freeze();
        replays(name, plain, [2, 6, 4, 5], |x| {
            gradients!(batch, maps(x), [])
        });
    }
}

#[test]
fn batch_norm_in_training_refuses_to_be_recorded() {
    let _alone = alone();
    for (name, device) in devices() {
        if !RECORDING.contains(&name) {
            continue;
        }
        guard::leave_out_everywhere();
        let layer = BatchNormConfig::new(6).init(&device.clone().autodiff());
        let x = noise([2, 6, 4, 5], 1, &device);
        let graph = capture(&device, || {
            let refused = layer.try_forward(x.clone().autodiff());
            refused.err().map(|error| error.to_string())
        });
        let expected = "batch norm in training cannot be recorded: a replay would not update the running statistics: \
                        record cubenorm::batch_norm_train, or freeze the BatchNorm";
        assert_eq!(graph.output().as_deref(), Some(expected), "{name}");
    }
}
