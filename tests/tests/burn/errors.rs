//! Bad input: the typed error, word for word, and the same message where a call panics.

use burn::tensor::{DType, Device, Tensor};
use cubenorm::nn::{LayerNormConfig, RmsNormConfig};
use cubenorm::{Activation, MeanVarianceOptions, NormError};

use crate::{devices, noise};

fn message<T>(result: Result<T, NormError>) -> String {
    result.err().expect("the call is refused").to_string()
}

#[test]
fn bad_arguments_are_refused_word_for_word() {
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
        assert_eq!(
            message(cubenorm::try_instance_norm(one(), None, None, 1e-5)),
            "input has shape [4]: expected [batch, channels, ...]"
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
        for (epsilon, text) in [(-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            assert_eq!(
                message(cubenorm::try_rms_norm(x(), None, epsilon)),
                format!("epsilon is {text}: expected a finite number that is not negative")
            );
        }
        if device.supports_dtype(DType::F64) {
            // CubeCL's error function has f32's digits.
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

fn panic_message(call: impl FnOnce() + std::panic::UnwindSafe) -> String {
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
fn layers_panic_with_the_same_words() {
    let of = |device: Device| {
        move || {
            let norm = LayerNormConfig::new(10).init(&device);
            norm.forward(Tensor::<2>::zeros([1, 3], &device));
        }
    };
    for (name, device) in devices() {
        assert_eq!(
            panic_message(std::panic::AssertUnwindSafe(of(device.clone()))),
            "gamma has shape [10]: expected [3], a number for each of the input's 3 features",
            "{name}"
        );
        let negative = std::panic::AssertUnwindSafe(|| {
            RmsNormConfig::new(3).with_epsilon(0.0).init(&device);
        });
        assert_eq!(panic_message(negative), "epsilon must be positive.");
    }
}
