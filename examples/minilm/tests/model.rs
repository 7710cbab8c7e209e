//! Parts of the network against values computed by hand.
#![cfg(feature = "flex")]

use burn::tensor::{Device, Tensor, Tolerance};
use cubenorm_example_common::Norms;
use minilm::model::{mean_pool, normalize};
use minilm::norms::ResidualNorm;

#[test]
fn pooling_ignores_padding() {
    let device = Device::flex();
    let hidden = Tensor::<3>::from_floats(
        [
            [[1.0, 2.0], [3.0, 4.0], [90.0, 90.0]],
            [[5.0, 6.0], [70.0, 70.0], [80.0, 80.0]],
        ],
        &device,
    );
    let mask = Tensor::<2>::from_floats([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], &device);
    let expected = Tensor::<2>::from_floats([[2.0, 3.0], [5.0, 6.0]], &device);
    mean_pool(hidden, mask)
        .into_data()
        .assert_eq(&expected.into_data(), true);
}

#[test]
fn normalized_rows_have_length_one() {
    let device = Device::flex();
    let rows = Tensor::<2>::from_floats([[3.0, 4.0], [0.0, -2.0]], &device);
    let expected = Tensor::<2>::from_floats([[0.6, 0.8], [0.0, -1.0]], &device);
    normalize(rows)
        .into_data()
        .assert_approx_eq::<f32>(&expected.into_data(), Tolerance::default());
}

#[test]
fn both_norms_add_the_residual() {
    let device = Device::flex();
    let norm = ResidualNorm::new(4, 1e-12, &device);
    let input = Tensor::<2>::from_floats([[1.0, 2.0, 3.0, 4.0]], &device);
    let residual = Tensor::<2>::from_floats([[1.0, 0.0, 1.0, 0.0]], &device);
    // The sum is 2, 2, 4, 4: mean 3, standard deviation 1.
    let expected = Tensor::<2>::from_floats([[-1.0, -1.0, 1.0, 1.0]], &device).into_data();
    for norms in [Norms::Burn, Norms::Cubenorm] {
        norm.forward(input.clone(), residual.clone(), norms)
            .into_data()
            .assert_approx_eq::<f32>(&expected, Tolerance::default());
    }
}
