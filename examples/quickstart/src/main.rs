//! Replaces `burn::nn::LayerNorm` by `cubenorm::nn::LayerNorm`. Nothing else changes.

use burn::tensor::{Device, Distribution, Tensor};
use cubenorm::nn::LayerNormConfig; // was: use burn::nn::LayerNormConfig;

fn main() {
    let device = Device::default();
    let norm = LayerNormConfig::new(768).init(&device);

    let input = Tensor::<3>::random([8, 128, 768], Distribution::Normal(5.0, 2.0), &device);
    let output = norm.forward(input.clone());

    // A residual addition is fused into the norm, which also returns the sum.
    let (gamma, beta) = (
        norm.gamma.val(),
        norm.beta.as_ref().map(burn::module::Param::val),
    );
    let (fused, _sum) = cubenorm::add_layer_norm(input.clone(), input, gamma, beta, 1e-5);

    println!("device: {device:?}");
    println!("mean {:.4}", output.clone().mean().into_scalar::<f32>());
    println!("layer norm: {}", output.slice([0..1, 0..1, 0..4]));
    println!("with a residual: {}", fused.slice([0..1, 0..1, 0..4]));
}
