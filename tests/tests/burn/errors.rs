//! Bad input: the typed error, its message, and the same message from calls that panic.

use burn::tensor::{DType, Device, Tensor};
use cubenorm::nn::{
    BatchNormConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig, RmsNormConfig,
};
use cubenorm::{Activation, GateOptions, Lp, MeanVarianceOptions, NormError};

use crate::{devices, noise, values};

fn message<T>(result: Result<T, NormError>) -> String {
    result.err().expect("the call is refused").to_string()
}

#[test]
fn bad_input_of_a_dynamic_tanh_is_a_typed_error() {
    for (name, device) in devices() {
        let refused = |alpha: Tensor<1>, gamma: [usize; 1]| {
            let x = noise([2, 3, 4], 1, &device);
            message(cubenorm::try_dynamic_tanh(
                x,
                alpha,
                noise(gamma, 2, &device),
                None,
            ))
        };
        assert_eq!(
            refused(noise([4], 3, &device), [4]),
            "alpha has shape [4]: expected [1], one number for all elements",
            "{name}"
        );
        assert_eq!(
            refused(noise([1], 3, &device), [3]),
            "gamma has shape [3]: expected [4], a number for each of the input's 4 features"
        );
        if device.supports_dtype(DType::F16) {
            let alpha = noise([1], 3, &device).cast(DType::F16);
            assert_eq!(
                refused(alpha, [4]),
                "alpha has dtype f16: expected f32, as the input has dtype f32",
                "{name}"
            );
        }
    }
}

#[test]
fn bad_arguments_are_typed_errors() {
    for (name, device) in devices() {
        let x = || noise([2, 3, 4], 1, &device);
        let try_axes = |axes: &[usize]| {
            let options = MeanVarianceOptions::new(axes);
            message(cubenorm::try_mean_variance_norm(x(), None, None, &options))
        };
        assert_eq!(
            try_axes(&[3]),
            "axis 3 is out of range: the input has rank 3, so axes go from 0 to 2",
            "{name}"
        );
        assert_eq!(
            try_axes(&[1, 1]),
            "axis 1 is listed more than once in [1, 1]"
        );

        let options = MeanVarianceOptions::new([2]);
        let scale = noise([1, 2, 1], 2, &device);
        assert_eq!(
            message(cubenorm::try_mean_variance_norm(x(), scale, None, &options)),
            "scale with shape [1, 2, 1] does not broadcast to the input's shape [2, 3, 4]: each of \
             its dimensions, aligned at the last, must be 1 or the input's"
        );
        assert_eq!(
            message(cubenorm::try_layer_norm(
                x(),
                noise([3], 3, &device),
                None,
                1e-5
            )),
            "gamma has shape [3]: expected [4], a number for each of the input's 4 features"
        );
        assert_eq!(
            message(cubenorm::try_instance_norm(
                x(),
                None,
                noise([4], 3, &device),
                1e-5
            )),
            "beta has shape [4]: expected [3], a number for each of the input's 3 features"
        );
        assert_eq!(
            message(cubenorm::try_add_layer_norm(
                x(),
                noise([1, 3, 4], 3, &device),
                None,
                None,
                1e-5
            )),
            "residual has shape [1, 3, 4]: expected the input's, [2, 3, 4]"
        );
        let one = || noise([4], 4, &device);
        assert_eq!(
            message(cubenorm::try_batch_norm(
                x(),
                None,
                None,
                one(),
                noise([3], 4, &device),
                1e-5
            )),
            "mean has shape [4]: expected [3], a number for each of the input's 3 features"
        );
        assert_eq!(
            message(cubenorm::try_group_norm(x(), None, None, 2, 1e-5)),
            "input has shape [2, 3, 4]: expected [batch, channels, ...] with channels in 2 equal groups"
        );
        let (identity, residual) = (Activation::Identity, noise([2, 1, 1], 4, &device));
        assert_eq!(
            message(cubenorm::try_group_norm_with(
                x(),
                residual,
                None,
                None,
                3,
                1e-5,
                identity
            )),
            "residual has shape [2, 1, 1]: expected the input's, [2, 3, 4], or its first two sizes and ones"
        );
        let gated = |gate: [usize; 3], options| {
            let gate = noise(gate, 4, &device);
            message(cubenorm::try_gated_rms_norm(x(), gate, None, &options))
        };
        let options = GateOptions::new();
        assert_eq!(
            gated([2, 3, 1], options),
            "gate has shape [2, 3, 1]: expected the input's, [2, 3, 4]"
        );
        assert_eq!(
            gated([2, 3, 4], options.with_group_size(3)),
            "input has shape [2, 3, 4]: expected [..., d] with d in groups of 3"
        );
        let leaky = Activation::LeakyRelu { alpha: 0.1 };
        let in_front = options.with_norm_before_gate(false).with_activation(leaky);
        assert_eq!(
            gated([2, 3, 4], in_front),
            "the gate's activation is LeakyRelu { alpha: 0.1 }: expected one without parameters, such as Silu"
        );
        if device.supports_dtype(DType::F64) {
            let wide = noise([2, 3, 4], 4, &device).cast(DType::F64);
            assert_eq!(
                message(cubenorm::try_gated_rms_norm(x(), wide, None, &options)),
                "gate has dtype f64: expected f16 or bf16 or f32, as the input has dtype f32"
            );
        }
        assert_eq!(
            message(cubenorm::try_instance_norm(one(), None, None, 1e-5)),
            "input has shape [4]: expected rank 2 or more, as [batch, channels, ...], but its rank is 1"
        );
        let modulation = |features| noise([2, features], 5, &device);
        assert_eq!(
            message(cubenorm::try_ada_layer_norm(
                x(),
                modulation(4),
                modulation(3),
                1e-5
            )),
            "shift has shape [2, 3]: expected [2, 4], a number for each sample and feature"
        );
        let shift = noise([2, 2, 4], 6, &device);
        assert_eq!(
            message(cubenorm::try_modulated_rms_norm(x(), None, shift, 1e-5)),
            "shift with shape [2, 2, 4] does not broadcast to the input's shape [2, 3, 4]: each of \
             its dimensions, aligned at the last, must be 1 or the input's"
        );
        for (epsilon, text) in [(-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            assert_eq!(
                message(cubenorm::try_rms_norm(x(), None, epsilon)),
                format!("epsilon is {text}: expected a finite number that is not negative")
            );
        }
        if device.supports_dtype(DType::F64) {
            // CubeCL's error function has the precision of f32.
            let options = MeanVarianceOptions::new([2]).with_activation(Activation::Gelu);
            let wide = x().cast(DType::F64);
            let result = cubenorm::try_mean_variance_norm(wide, None, None, &options);
            match name.contains("flex") {
                true => assert!(result.is_ok(), "{name}"),
                false => assert!(
                    message(result).contains("does not compute Gelu to the digits of f64"),
                    "{name}"
                ),
            }
            let gamma = noise([4], 3, &device).cast(DType::F64);
            assert_eq!(
                message(cubenorm::try_layer_norm(x(), gamma, None, 1e-5)),
                "gamma has dtype f64: expected f32, as the input has dtype f32"
            );
        }
    }
}

fn panic_message(call: impl FnOnce()) -> String {
    let call = std::panic::AssertUnwindSafe(call);
    let panic = std::panic::catch_unwind(call).expect_err("the call panics");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => other
            .downcast_ref::<&str>()
            .copied()
            .unwrap_or_default()
            .to_owned(),
    }
}

#[test]
fn layers_panic_with_the_message_of_the_error() {
    let of = |device: Device| {
        move || {
            let norm = LayerNormConfig::new(10).init(&device);
            norm.forward(Tensor::<2>::zeros([1, 3], &device));
        }
    };
    for (name, device) in devices() {
        assert_eq!(
            panic_message(of(device.clone())),
            "gamma has shape [10]: expected [3], a number for each of the input's 3 features",
            "{name}"
        );
        let zero = || {
            RmsNormConfig::new(3).with_epsilon(0.0).init(&device);
        };
        assert_eq!(panic_message(zero), "epsilon must be positive.");
    }
}

#[test]
fn rank_errors_name_the_rank() {
    let (_, device) = devices().remove(0);
    let x = || noise([4], 1, &device);
    let one = || noise([4], 2, &device);
    let channels = "input has shape [4]: expected rank 2 or more, as [batch, channels, ...], but its rank is 1";
    let of_norms = [
        cubenorm::try_batch_norm(x(), None, None, one(), one(), 1e-5).err(),
        cubenorm::try_batch_norm_train(x(), None, None, 1e-5).err(),
        cubenorm::try_group_norm(x(), None, None, 2, 1e-5).err(),
        cubenorm::try_instance_norm(x(), None, None, 1e-5).err(),
    ];
    for error in of_norms {
        assert_eq!(error.expect("it is refused").to_string(), channels);
    }
    let modulation = || noise([4, 4], 3, &device);
    assert_eq!(
        message(cubenorm::try_ada_layer_norm(
            x(),
            modulation(),
            modulation(),
            1e-5
        )),
        "input has shape [4]: expected rank 2 or more, as [batch, ..., d], but its rank is 1"
    );
    let of_layers = [
        panic_message(|| drop(GroupNormConfig::new(2, 4).init(&device).forward(x()))),
        panic_message(|| drop(InstanceNormConfig::new(4).init(&device).forward(x()))),
    ];
    for message in of_layers {
        assert_eq!(
            message,
            "input has shape [4]: expected rank 2 or more, as [batch, 4, ...], but its rank is 1"
        );
    }
    assert_eq!(
        panic_message(|| drop(BatchNormConfig::new(4).init(&device).forward(x()))),
        channels
    );
    let wrong = || noise([2, 3], 4, &device);
    let of_layers = [
        GroupNormConfig::new(2, 4)
            .init(&device)
            .try_forward(wrong()),
        InstanceNormConfig::new(4)
            .init(&device)
            .try_forward(wrong()),
    ];
    for result in of_layers {
        assert_eq!(
            message(result),
            "input has shape [2, 3]: expected [batch, 4, ...]"
        );
    }
    let of_layers = [
        LayerNormConfig::new(4).init(&device).try_forward(wrong()),
        RmsNormConfig::new(4).init(&device).try_forward(wrong()),
    ];
    for result in of_layers {
        assert_eq!(
            message(result),
            "gamma has shape [4]: expected [3], a number for each of the input's 3 features"
        );
    }
    // Burn's tensors on CubeCL have at most 8 dimensions.
    for (_, device) in devices().into_iter().filter(|(name, _)| *name == "flex") {
        let nine = noise([1; 9], 4, &device);
        assert_eq!(
            message(cubenorm::try_layer_norm(nine, None, None, 1e-5)),
            "input has rank 9: expected a rank from 1 to 8"
        );
    }
}

#[test]
fn mixed_checkpointing_is_an_error() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let x = noise([2, 4], 1, &device);
        let gamma = noise([4], 2, &device.clone().gradient_checkpointing());
        let result = cubenorm::try_layer_norm(x.clone(), gamma, None, 1e-5);
        assert_eq!(
            message(result),
            "gamma has gradient checkpointing Balanced: expected Disabled, as input has",
            "{name}"
        );
        // A constant goes with either.
        let gamma = noise([4], 2, &device.without_autodiff());
        assert!(cubenorm::try_layer_norm(x, gamma, None, 1e-5).is_ok());
    }
}

/// Calls each norm with an input of these samples.
fn try_all(x: &Tensor<3>) -> Vec<(&'static str, Result<Tensor<3>, NormError>)> {
    let [_, channels, last] = x.dims();
    let device = x.device();
    let one = |size: usize| Tensor::<1>::ones([size], &device);
    let x = || x.clone();
    let options = MeanVarianceOptions::new([2]);
    let provided = || Tensor::<3>::ones([1, channels, 1], &device);
    vec![
        (
            "layer",
            cubenorm::try_layer_norm(x(), one(last), one(last), 1e-5),
        ),
        ("rms", cubenorm::try_rms_norm(x(), one(last), 1e-5)),
        (
            "add layer",
            cubenorm::try_add_layer_norm(x(), x(), None, None, 1e-5).map(|(y, _)| y),
        ),
        (
            "add rms",
            cubenorm::try_add_rms_norm(x(), x(), None, 1e-5).map(|(y, _)| y),
        ),
        (
            "instance",
            cubenorm::try_instance_norm(x(), None, None, 1e-5),
        ),
        (
            "group",
            cubenorm::try_group_norm(x(), one(channels), one(channels), 2, 1e-5),
        ),
        (
            "group with a residual",
            cubenorm::try_group_norm_with(x(), x(), None, None, 2, 1e-5, Activation::Silu),
        ),
        (
            "gated rms",
            cubenorm::try_gated_rms_norm(x(), x(), one(last), &GateOptions::new()),
        ),
        (
            "gated layer",
            cubenorm::try_gated_layer_norm(x(), x(), one(last), None, &GateOptions::new()),
        ),
        (
            "batch",
            cubenorm::try_batch_norm(x(), None, None, one(channels), one(channels), 1e-5),
        ),
        (
            "batch in training",
            cubenorm::try_batch_norm_train(x(), None, None, 1e-5).map(|it| it.output),
        ),
        (
            "mean variance",
            cubenorm::try_mean_variance_norm(x(), None, None, &options),
        ),
        (
            "with statistics",
            cubenorm::try_mean_variance_norm_with_statistics(x(), None, None, &options)
                .map(|it| it.output),
        ),
        (
            "broadcast batch",
            cubenorm::try_broadcast_batch_norm(
                x(),
                provided(),
                provided(),
                None,
                None,
                1e-5,
                Activation::Relu,
            ),
        ),
        ("lp", cubenorm::try_lp_norm(x(), Lp::L2, 2)),
    ]
}

#[test]
fn results_beyond_the_device_are_errors() {
    for (name, device) in devices() {
        // Flex has no limit but the machine's memory.
        if name == "flex" {
            continue;
        }
        for device in [device.clone(), device.clone().autodiff()] {
            let samples = 1usize << 40;
            let small = noise([1, 4, 8], 1, &device);
            let small = match device.is_autodiff() {
                true => small.require_grad(),
                false => small,
            };
            let x = small.clone().expand([samples, 4, 8]);
            for (norm, result) in try_all(&x) {
                let Err(error) = result else {
                    panic!("{name}: {norm} was not refused");
                };
                assert!(
                    matches!(
                        error,
                        NormError::DeviceLimit {
                            pass: "forward",
                            ..
                        }
                    ),
                    "{name}: {norm}: {error}"
                );
            }
            let refused = message(cubenorm::try_rms_norm(x.clone(), None, 1e-5));
            assert_eq!(
                panic_message(|| drop(cubenorm::rms_norm(x.clone(), None, 1e-5))),
                refused,
                "{name}"
            );
            // Nothing of it is left on the device.
            let y = cubenorm::layer_norm(small, None, None, 1e-5);
            let sum: f64 = values(y).iter().sum();
            assert!(sum.abs() < 1e-3, "{name}: {sum}");
        }
    }
}

#[test]
fn empty_tensors_are_no_errors() {
    for (name, device) in devices() {
        for device in [device.clone(), device.clone().autodiff()] {
            for shape in [[0, 4, 8], [2, 0, 8], [2, 4, 0]] {
                let x = Tensor::<3>::zeros(shape, &device);
                for (norm, result) in try_all(&x) {
                    let y = result
                        .unwrap_or_else(|error| panic!("{name}: {norm} of {shape:?}: {error}"));
                    assert_eq!(y.dims(), shape, "{name}: {norm}");
                }
            }
        }
    }
}

#[test]
fn uncountable_shapes_are_errors() {
    for (name, device) in devices() {
        let x = Tensor::<4>::zeros([0, 1, 1usize << 40, 1 << 40], &device);
        let result = cubenorm::try_group_norm(x.clone(), None, None, 1, 1e-5);
        assert_eq!(
            message(result),
            "input with shape [0, 1, 1099511627776, 1099511627776] has more elements than this machine \
             can address",
            "{name}"
        );
        let options = MeanVarianceOptions::new([0]);
        let result = cubenorm::try_mean_variance_norm_with_statistics(x, None, None, &options);
        assert_eq!(
            message(result),
            "statistics with shape [1, 1, 1099511627776, 1099511627776, 2] has more elements than this \
             machine can address",
            "{name}"
        );
    }
}
