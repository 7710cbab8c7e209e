//! Tests of the network with random weights, without the published ones.
#![cfg(feature = "flex")]

use std::fs;
use std::path::Path;

use burn::tensor::{Device, Tensor, Tolerance};
use candy::network::Candy;
use candy::weights::Weights;
use cubenorm_example_common::Norms;

/// Writes an `.npy` file of small pseudo-random numbers around `centre`.
fn write(folder: &Path, name: &str, shape: &[usize], centre: f32) {
    let mut state = name.bytes().fold(1_u32, |state, byte| {
        state.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let sizes: Vec<_> = shape.iter().map(|size| format!("{size},")).collect();
    let header = format!(
        "{{'descr':'<f4', 'fortran_order':False, 'shape':({}), }}\n",
        sizes.concat()
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for _ in 0..shape.iter().product() {
        bytes.extend((centre + 0.1 * random()).to_le_bytes());
    }
    fs::write(folder.join(format!("{name}.npy")), bytes).unwrap();
}

/// Writes random weights of the network to `folder`.
fn write_weights(folder: &Path) {
    let number = |index: usize| match index {
        0 => String::new(),
        index => index.to_string(),
    };
    for index in 0..16 {
        let (filter, channels) = match index {
            0 => ([16, 3, 9, 9], 16),
            1 => ([32, 16, 3, 3], 32),
            2 => ([64, 32, 3, 3], 64),
            13 => ([64, 32, 3, 3], 32),
            14 => ([32, 16, 3, 3], 16),
            15 => ([3, 16, 9, 9], 3),
            _ => ([64, 64, 3, 3], 64),
        };
        let n = number(index);
        write(folder, &format!("convolution{n}_W"), &filter, 0.0);
        write(folder, &format!("convolution{n}_B"), &[channels], 0.0);
        if index < 15 {
            write(
                folder,
                &format!("InstanceNormalization_scale{n}"),
                &[channels],
                1.0,
            );
            write(
                folder,
                &format!("InstanceNormalization_B{n}"),
                &[channels],
                0.0,
            );
        }
    }
    write(folder, "Mul_B", &[3, 1, 1], 1.0);
    write(folder, "scale_B", &[3, 1, 1], 110.0);
}

#[test]
fn both_norms_give_the_same_picture() {
    let folder = tempfile::tempdir().unwrap();
    write_weights(folder.path());
    let device = Device::flex();
    let weights = Weights::open(folder.path(), &device).unwrap();
    let network = Candy::load(&weights, &device).unwrap();

    // Not square, to detect swapped height and width.
    let picture = Tensor::<4>::random(
        [1, 3, 44, 60],
        burn::tensor::Distribution::Uniform(0.0, 255.0),
        &device,
    );
    let burn = network.forward(picture.clone(), Norms::Burn);
    let cubenorm = network.forward(picture, Norms::Cubenorm);
    assert_eq!(burn.dims(), [1, 3, 44, 60]);
    burn.into_data()
        .assert_approx_eq::<f32>(&cubenorm.into_data(), Tolerance::absolute(0.01));
}

#[test]
fn missing_weight_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write_weights(folder.path());
    fs::remove_file(folder.path().join("convolution7_B.npy")).unwrap();
    let device = Device::flex();
    let weights = Weights::open(folder.path(), &device).unwrap();
    let error = format!("{:#}", Candy::load(&weights, &device).unwrap_err());
    assert!(error.contains("convolution7_B.npy"), "{error}");
}

#[test]
fn weight_of_another_shape_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write_weights(folder.path());
    write(folder.path(), "convolution3_W", &[64, 64, 1, 1], 0.0);
    let device = Device::flex();
    let weights = Weights::open(folder.path(), &device).unwrap();
    let error = format!("{:#}", Candy::load(&weights, &device).unwrap_err());
    assert!(error.contains("[64, 64, 1, 1]"), "{error}");
}
