//! Tensors of a backend that Burn is built with and this crate is not: here Flex, which the dev-dependency turns on.
#![cfg(not(feature = "flex"))]

use burn::tensor::{Device, Tensor};
use cubenorm::{Activation, Lp, MeanVarianceOptions, NormError};

fn errors(device: &Device) -> Vec<(&'static str, Option<NormError>)> {
    let x = || Tensor::<3>::ones([2, 4, 8], device);
    let one = |size: usize| Tensor::<1>::ones([size], device);
    let channel = || Tensor::<3>::ones([1, 4, 1], device);
    let modulation = || Tensor::<2>::ones([2, 8], device);
    let options = MeanVarianceOptions::new([2]);
    vec![
        (
            "layer",
            cubenorm::try_layer_norm(x(), one(8), one(8), 1e-5).err(),
        ),
        ("rms", cubenorm::try_rms_norm(x(), one(8), 1e-5).err()),
        (
            "add layer",
            cubenorm::try_add_layer_norm(x(), x(), None, None, 1e-5).err(),
        ),
        (
            "add rms",
            cubenorm::try_add_rms_norm(x(), x(), None, 1e-5).err(),
        ),
        (
            "instance",
            cubenorm::try_instance_norm(x(), None, None, 1e-5).err(),
        ),
        (
            "group",
            cubenorm::try_group_norm(x(), None, None, 2, 1e-5).err(),
        ),
        (
            "batch",
            cubenorm::try_batch_norm(x(), one(4), one(4), one(4), one(4), 1e-5).err(),
        ),
        (
            "batch in training",
            cubenorm::try_batch_norm_train(x(), None, None, 1e-5).err(),
        ),
        (
            "adaptive layer",
            cubenorm::try_ada_layer_norm(x(), modulation(), modulation(), 1e-5).err(),
        ),
        (
            "mean variance",
            cubenorm::try_mean_variance_norm(x(), None, None, &options).err(),
        ),
        (
            "with statistics",
            cubenorm::try_mean_variance_norm_with_statistics(x(), None, None, &options).err(),
        ),
        (
            "broadcast batch",
            cubenorm::try_broadcast_batch_norm(
                x(),
                channel(),
                channel(),
                None,
                None,
                1e-5,
                Activation::Identity,
            )
            .err(),
        ),
        ("lp", cubenorm::try_lp_norm(x(), Lp::L2, 2).err()),
    ]
}

#[test]
fn a_missing_backend_is_an_error() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        for (norm, error) in errors(&device) {
            let error = error.unwrap_or_else(|| panic!("{norm} was not refused"));
            assert!(
                matches!(
                    error,
                    NormError::UnsupportedBackend {
                        tensor: "input",
                        ..
                    }
                ),
                "{norm}: {error}"
            );
            let message = error.to_string();
            assert!(message.contains("Flex"), "{norm}: {message}");
            assert!(
                message.ends_with("cubenorm is built without: turn on its feature `flex`"),
                "{norm}: {message}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "turn on its feature `flex`")]
fn the_panic_names_the_missing_feature() {
    let x = Tensor::<2>::ones([2, 8], &Device::flex());
    let _ = cubenorm::layer_norm(x, None, None, 1e-5);
}
