//! Several norms in one block of operations, and what is queued around them.

use burn::nn;
use burn::tensor::{DType, Device, Tensor, TensorData, activation};

use crate::layers::{Model, compare};
use crate::{noise, values};

const EPSILON: f64 = 1e-5;

fn input(device: &Device, dtype: DType) -> Tensor<3> {
    noise([2, 8, 64], 1, dtype, device).0
}

/// A tensor whose upload is still queued, as the inputs and the parameters of a new model are.
fn queued<const D: usize>(
    shape: [usize; D],
    seed: u64,
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    let elements = shape.iter().product();
    let noise = (0..elements).map(|at| cubenorm_tests::case::noise(seed, at));
    let data = TensorData::new(noise.collect::<Vec<f64>>(), shape);
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

fn layer_norm(x: Tensor<3>) -> Tensor<3> {
    let c = x.clone() - x.mean_dim(2);
    let variance = c.clone().square().mean_dim(2);
    c / (variance + EPSILON).sqrt()
}

fn rms_norm(x: Tensor<3>) -> Tensor<3> {
    let square = x.clone().square().mean_dim(2);
    x / (square + EPSILON).sqrt()
}

/// Reads tensors that are all queued by now.
fn all_values<const D: usize>(tensors: Vec<Tensor<D>>) -> Vec<f64> {
    tensors.into_iter().flat_map(values).collect()
}

fn blocks() -> Vec<Model> {
    vec![
        Model {
            name: "sixteen layer norms of one tensor, each behind an operation",
            norms: 16,
            run: |device, dtype| {
                let layer = nn::LayerNormConfig::new(64).init(device);
                let x = input(device, dtype);
                let graph = |_| layer.forward(x.clone().tanh());
                all_values((0..16).map(graph).collect())
            },
        },
        Model {
            name: "sixteen RMS norms of one tensor",
            norms: 16,
            run: |device, dtype| {
                let x = input(device, dtype);
                let graph = |_| rms_norm(x.clone());
                all_values((0..16).map(graph).collect())
            },
        },
        Model {
            name: "sixteen layer norms of one tensor, each between operations",
            norms: 16,
            run: |device, dtype| {
                let x = input(device, dtype);
                let graph = |_| layer_norm(x.clone().tanh()).exp();
                all_values((0..16).map(graph).collect())
            },
        },
        Model {
            name: "sixteen RMS norms that are left to Burn",
            norms: 0,
            run: |device, dtype| {
                let x = input(device, dtype);
                let graph = |_| rms_norm(x.clone().tanh()).exp();
                all_values((0..16).map(graph).collect())
            },
        },
        Model {
            name: "a norm of a norm of a norm",
            norms: 3,
            run: |device, dtype| {
                let x = input(device, dtype);
                values(layer_norm(rms_norm(layer_norm(x)) * 3.0))
            },
        },
        Model {
            name: "norms with a residual around each",
            norms: 4,
            run: |device, dtype| {
                let mut x = input(device, dtype);
                for _ in 0..2 {
                    x = x.clone() + layer_norm(x);
                    x = x.clone() + rms_norm(x);
                }
                values(x)
            },
        },
        Model {
            name: "a norm as the residual of another one",
            norms: 2,
            run: |device, dtype| {
                let x = input(device, dtype);
                let z = noise([2, 8, 64], 2, dtype, device).0;
                values(layer_norm(x) + rms_norm(z))
            },
        },
        Model {
            name: "norms over two axes of one tensor",
            norms: 2,
            run: |device, dtype| {
                let x = input(device, dtype);
                let columns = x.clone().swap_dims(1, 2);
                all_values(vec![layer_norm(x), layer_norm(columns)])
            },
        },
        Model {
            name: "a norm beside one that divides by a wrong number",
            norms: 1,
            run: |device, dtype| {
                let x = input(device, dtype);
                let wrong = x.clone() / (x.clone().square().sum_dim(2) / 60.0 + EPSILON).sqrt();
                all_values(vec![wrong, layer_norm(x)])
            },
        },
        Model {
            name: "a norm beside a softmax",
            norms: 1,
            run: |device, dtype| {
                let x = input(device, dtype);
                let softmax = activation::softmax(x.clone(), 2);
                all_values(vec![softmax, layer_norm(x)])
            },
        },
        Model {
            name: "a softmax of a norm, and a norm of that",
            norms: 2,
            run: |device, dtype| {
                let x = layer_norm(input(device, dtype));
                values(layer_norm(activation::softmax(x, 2)))
            },
        },
        Model {
            name: "a matrix product on each side",
            norms: 2,
            run: |device, dtype| {
                let w = noise([1, 64, 64], 3, dtype, device).0;
                let x = input(device, dtype).matmul(w.clone());
                let y = layer_norm(x).matmul(w.clone());
                values(rms_norm(activation::gelu(y)).matmul(w))
            },
        },
        Model {
            name: "an input that is queued",
            norms: 1,
            run: |device, dtype| values(layer_norm(queued([2, 8, 64], 4, dtype, device))),
        },
        Model {
            name: "parameters that are queued",
            norms: 1,
            run: |device, dtype| {
                let gamma = queued([64], 5, dtype, device) * 2.0;
                let beta = queued([64], 6, dtype, device) + 1.0;
                let x = queued([2, 8, 64], 4, dtype, device);
                values(layer_norm(x) * gamma.unsqueeze() + beta.unsqueeze())
            },
        },
        Model {
            name: "layers whose weights are queued",
            norms: 2,
            run: |device, _| {
                let [first, second] = [64, 64].map(|size| {
                    let weight = queued([size, size], 7, DType::F32, device) * 0.25;
                    let bias = queued([size], 8, DType::F32, device) * 0.25;
                    (weight.unsqueeze::<3>(), bias.unsqueeze::<3>())
                });
                let [gamma, beta] =
                    [9, 10].map(|seed| queued([64], seed, DType::F32, device) * 0.5);
                let x = queued([2, 8, 64], 4, DType::F32, device);
                let x = layer_norm(x.matmul(first.0) + first.1);
                let x = x * gamma.unsqueeze() + beta.unsqueeze();
                values(rms_norm(x.matmul(second.0) + second.1))
            },
        },
        Model {
            name: "rows of tables, a mask and projections, as in BERT",
            norms: 2,
            run: |device, _| {
                let embedding = nn::EmbeddingConfig::new(30, 64).init(device);
                let [norm, last] = [(); 2].map(|()| nn::LayerNormConfig::new(64).init(device));
                let linears = [(); 3].map(|()| nn::LinearConfig::new(64, 64).init(device));
                let module =
                    crate::layers::in_noise((embedding, norm, last, linears.to_vec()), DType::F32);
                let (embedding, norm, last, linears) = module;
                let ids = Tensor::from_ints([[1, 2, 3, 4], [5, 6, 7, 29]], device);
                let places = embedding.weight.val().narrow(0, 0, 4);
                let places = places.unsqueeze::<3>().expand([2, 4, 64]);
                let hidden = norm.forward(embedding.forward(ids) + places);
                let mask = noise([2, 4], 11, DType::F32, device).0.greater_elem(0.0);
                let projected: Vec<_> = linears
                    .iter()
                    .map(|linear| linear.forward(hidden.clone()))
                    .collect();
                let [query, key, value] = projected.try_into().expect("there are three");
                let scores = query.matmul(key.swap_dims(1, 2)) / 8.0;
                let scores = scores.mask_fill(mask.unsqueeze_dim::<3>(1).expand([2, 4, 4]), -1e4);
                let context = activation::softmax(scores, 2).matmul(value);
                values(last.forward(context + hidden))
            },
        },
    ]
}

#[test]
fn all_norms_of_a_block_are_matched() {
    compare(
        "blocks::all_norms_of_a_block_are_matched",
        blocks,
        &[DType::F32],
    );
}
