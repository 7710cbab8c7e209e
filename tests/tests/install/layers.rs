//! Unmodified layers and models of Burn: every norm in them is matched.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn;
use burn::nn::conv::Conv2dConfig;
use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
use burn::tensor::{DType, Device, Tensor, activation};
use cubenorm::DeclineReason;
use cubenorm_tests::tensors::supports;

use crate::process::{is_other, without_install};
use crate::{counted, devices, difference, installed, noise, values};

/// Replaces parameters by reproducible noise, around 1 for scales.
struct Noise(u64);

impl ModuleMapper for Noise {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        let seed = self.0;
        param.map(|tensor| {
            let (noise, _) = noise(tensor.dims(), seed, DType::F32, &tensor.device());
            noise * 0.25
        })
    }
}

/// A name, the number of its norms, and its output.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) norms: u64,
    pub(crate) run: fn(&Device, DType) -> Vec<f64>,
}

fn input<const D: usize>(shape: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
    noise(shape, 1, dtype, device).0
}

/// A layer with parameters of noise, in a dtype.
pub(crate) fn in_noise<M: Module>(module: M, dtype: DType) -> M {
    struct ToDType(DType);
    impl ModuleMapper for ToDType {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|tensor| tensor.cast(self.0))
        }
    }
    let module = module.map(&mut Noise(100)).map(&mut ToDType(dtype));
    // The parameters of a model are there before it runs.
    for device in module.devices() {
        device.sync().expect("the device runs");
    }
    module
}

fn layers() -> Vec<Model> {
    vec![
        Model {
            name: "LayerNorm",
            norms: 1,
            run: |device, dtype| {
                let layer = in_noise(nn::LayerNormConfig::new(96).init(device), dtype);
                values(layer.forward(input([3, 5, 96], device, dtype)))
            },
        },
        Model {
            name: "LayerNorm without bias",
            norms: 1,
            run: |device, dtype| {
                let layer = nn::LayerNormConfig::new(96).with_bias(false).init(device);
                values(in_noise(layer, dtype).forward(input([3, 5, 96], device, dtype)))
            },
        },
        Model {
            name: "RmsNorm",
            norms: 1,
            run: |device, dtype| {
                let layer = in_noise(nn::RmsNormConfig::new(96).init(device), dtype);
                values(layer.forward(input([3, 5, 96], device, dtype)))
            },
        },
        Model {
            name: "GroupNorm",
            norms: 1,
            run: |device, dtype| {
                let layer = in_noise(nn::GroupNormConfig::new(3, 12).init(device), dtype);
                values(layer.forward(input([2, 12, 7, 9], device, dtype)))
            },
        },
        Model {
            name: "GroupNorm without parameters",
            norms: 1,
            run: |device, dtype| {
                let layer = nn::GroupNormConfig::new(3, 12)
                    .with_affine(false)
                    .init(device);
                values(layer.forward(input([2, 12, 63], device, dtype)))
            },
        },
        Model {
            name: "InstanceNorm",
            norms: 1,
            run: |device, dtype| {
                let layer = in_noise(nn::InstanceNormConfig::new(12).init(device), dtype);
                values(layer.forward(input([2, 12, 7, 9], device, dtype)))
            },
        },
        Model {
            name: "BatchNorm at inference",
            norms: 1,
            run: |device, dtype| {
                values(batch_norm(12, device, dtype).forward(input([2, 12, 7, 9], device, dtype)))
            },
        },
    ]
}

/// A batch norm with running statistics of its own.
fn batch_norm(channels: usize, device: &Device, dtype: DType) -> nn::BatchNorm {
    let layer = in_noise(nn::BatchNormConfig::new(channels).init(device), dtype);
    let (mean, _) = noise([channels], 7, DType::F32, device);
    let (variance, _) = noise([channels], 8, DType::F32, device);
    layer.running_mean.update(mean.cast(dtype));
    layer.running_var.update((variance.abs() + 0.5).cast(dtype));
    device.sync().expect("the device runs");
    layer
}

fn models() -> Vec<Model> {
    vec![
        Model {
            name: "TransformerEncoder",
            norms: 4,
            run: |device, dtype| {
                let encoder = TransformerEncoderConfig::new(64, 128, 4, 2).init(device);
                let x = TransformerEncoderInput::new(input([2, 9, 64], device, dtype));
                values(in_noise(encoder, dtype).forward(x))
            },
        },
        Model {
            name: "TransformerEncoder with norms first",
            norms: 4,
            run: |device, dtype| {
                let encoder = TransformerEncoderConfig::new(64, 128, 4, 2).with_norm_first(true);
                let x = TransformerEncoderInput::new(input([2, 9, 64], device, dtype));
                values(in_noise(encoder.init(device), dtype).forward(x))
            },
        },
        Model {
            name: "a block of a ResNet",
            norms: 2,
            run: |device, dtype| {
                let conv =
                    || Conv2dConfig::new([8, 8], [3, 3]).with_padding(nn::PaddingConfig2d::Same);
                let convs = [conv(), conv()].map(|conv| in_noise(conv.init(device), dtype));
                let norms = [(); 2].map(|()| batch_norm(8, device, dtype));
                let x = input([2, 8, 12, 12], device, dtype);
                let y = activation::relu(norms[0].forward(convs[0].forward(x.clone())));
                let y = norms[1].forward(convs[1].forward(y));
                values(activation::relu(y + x))
            },
        },
        Model {
            name: "a block of a U-Net",
            norms: 2,
            run: |device, dtype| {
                let conv =
                    || Conv2dConfig::new([8, 8], [3, 3]).with_padding(nn::PaddingConfig2d::Same);
                let convs = [conv(), conv()].map(|conv| in_noise(conv.init(device), dtype));
                let norm = || in_noise(nn::GroupNormConfig::new(4, 8).init(device), dtype);
                let norms = [norm(), norm()];
                let x = input([2, 8, 12, 12], device, dtype);
                let y = convs[0].forward(activation::silu(norms[0].forward(x.clone())));
                let y = convs[1].forward(activation::silu(norms[1].forward(y)));
                values(y + x)
            },
        },
    ]
}

/// Calls `run` for each model on each device and in each dtype.
fn for_each(
    models: fn() -> Vec<Model>,
    dtypes: &[DType],
    run: &mut dyn FnMut(&str, &Device, DType, &Model),
) {
    for (name, device) in devices() {
        for &dtype in dtypes {
            if supports(name, &device, dtype) {
                models()
                    .iter()
                    .for_each(|model| run(name, &device, dtype, model));
            }
        }
    }
}

/// Runs models with and without `install`.
pub(crate) fn compare(test: &str, models: fn() -> Vec<Model>, dtypes: &[DType]) {
    let all = || {
        let mut results = Vec::new();
        for_each(models, dtypes, &mut |_, device, dtype, model| {
            results.push((model.run)(device, dtype));
        });
        results
    };
    if is_other(all) {
        return;
    }
    let _guard = installed();
    let mut expected = without_install(test).into_iter();
    for_each(models, dtypes, &mut |name, device, dtype, model| {
        let before = cubenorm::install_report().norms();
        let actual = (model.run)(device, dtype);
        let report = cubenorm::install_report();
        let context = format!("{name} {dtype:?}: {}", model.name);
        assert_eq!(report.norms() - before, model.norms, "{context}\n{report}");
        let expected = expected.next().expect("the other process ran all");
        let largest = expected
            .iter()
            .fold(1.0, |most: f64, value| most.max(value.abs()));
        let tolerance = match dtype {
            DType::F16 => 4e-3,
            // Burn's tuner chooses among matrix products that round to TF32 and such that do not.
            _ if name == "cuda" => 4e-3,
            _ => 1e-5,
        };
        let difference = difference(&actual, &expected);
        assert!(
            difference <= tolerance * largest,
            "{context} is off by {difference}"
        );
    });
}

#[test]
fn layers_of_burn_are_matched() {
    compare(
        "layers::layers_of_burn_are_matched",
        layers,
        &[DType::F32, DType::F16],
    );
}

#[test]
fn all_norms_of_models_are_matched() {
    compare(
        "layers::all_norms_of_models_are_matched",
        models,
        &[DType::F32],
    );
}

#[test]
fn fifty_batch_sizes_are_matched() {
    let _guard = installed();
    for (name, device) in devices() {
        let layer = nn::LayerNormConfig::new(48).init(&device);
        for batch in 1..=50 {
            let (x, x_values) = noise([batch, 3, 48], batch as u64, DType::F32, &device);
            let (actual, norms, report) = counted(|| layer.forward(x));
            assert_eq!(norms, 1, "{name}, batch {batch}\n{report}");
            for (row, actual) in x_values.chunks(48).zip(actual.chunks(48)) {
                let mean = row.iter().sum::<f64>() / 48.0;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 48.0;
                for (x, actual) in row.iter().zip(actual) {
                    let expected = (x - mean) / (variance + 1e-5).sqrt();
                    assert!((actual - expected).abs() < 1e-5, "{name}, batch {batch}");
                }
            }
        }
    }
}

#[test]
fn threads_have_streams_of_their_own() {
    let _guard = installed();
    for (name, device) in devices() {
        let before = cubenorm::install_report().norms();
        let run = |seed: u64| {
            let layer = nn::RmsNormConfig::new(40).init(&device);
            let (mut x, _) = noise([4, 40], seed, DType::F32, &device);
            for _ in 0..20 {
                x = layer.forward(x) + 0.25;
            }
            values(x)
        };
        let alone = [1, 2].map(run);
        let together = std::thread::scope(|scope| {
            let run = &run;
            let threads = [1, 2].map(|seed| scope.spawn(move || run(seed)));
            threads.map(|thread| thread.join().expect("the thread ran"))
        });
        assert_eq!(alone, together, "{name}");
        let norms = cubenorm::install_report().norms() - before;
        assert_eq!(norms, 4 * 20, "{name}\n{}", cubenorm::install_report());
    }
}

#[test]
fn training_is_left_to_burn_with_the_same_gradients() {
    let gradients = |device: &Device| {
        let device = device.clone().autodiff();
        let layer = nn::LayerNormConfig::new(24).init(&device);
        let x = input([3, 5, 24], &device, DType::F32).require_grad();
        let weight = noise([3, 5, 24], 9, DType::F32, &device).0;
        let loss = (layer.forward(x.clone()) * weight).sum();
        let gradients = loss.backward();
        let x = values(x.grad(&gradients).expect("a gradient of the input"));
        let gamma = layer
            .gamma
            .val()
            .grad(&gradients)
            .expect("a gradient of the scale");
        [x, values(gamma)]
    };
    let all = || {
        devices()
            .iter()
            .flat_map(|(_, device)| gradients(device))
            .collect()
    };
    if is_other(all) {
        return;
    }
    let _guard = installed();
    let test = "layers::training_is_left_to_burn_with_the_same_gradients";
    let mut expected = without_install(test).into_iter();
    for (name, device) in devices() {
        for actual in gradients(&device) {
            let expected = expected.next().expect("the other process ran all");
            let difference = difference(&actual, &expected);
            assert!(difference < 1e-5, "{name} is off by {difference}");
        }
        let report = cubenorm::install_report();
        let is_kept =
            |reason: &DeclineReason| matches!(reason, DeclineReason::IntermediateRead { .. });
        let found = report
            .declined
            .iter()
            .any(|declined| is_kept(&declined.reason));
        assert!(found, "{name}\n{report}");
    }
}
