//! Sentence embeddings with all-MiniLM-L6-v2: BERT, its output averaged over the tokens.

use std::collections::HashMap;

use burn::module::Param;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::module::embedding;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use web_time::Instant;

use crate::device::{Opened, read};

const LAYERS: usize = 6;
const HEADS: usize = 12;
const HIDDEN: usize = 384;
const INTERMEDIATE: usize = 4 * HIDDEN;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const EPSILON: f64 = 1e-12;

/// Runs for the median, after one that compiles.
const RUNS: usize = 5;

/// The network.
pub(crate) struct MiniLm {
    device: Device,
    words: Tensor<2>,
    positions: Tensor<2>,
    types: Tensor<2>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// Embeddings and their time.
#[derive(Serialize)]
pub(crate) struct Embedded {
    /// One for each sentence, of length one.
    embeddings: Vec<Vec<f32>>,
    /// Median of a forward pass in milliseconds.
    milliseconds: f64,
}

struct Layer {
    query: Dense,
    key: Dense,
    value: Dense,
    merge: Dense,
    attention_norm: Norm,
    expand: Dense,
    output: Dense,
    output_norm: Norm,
}

struct Dense {
    /// `[outputs, inputs]`.
    weight: Tensor<2>,
    bias: Tensor<1>,
}

/// A residual addition and a layer norm. Both implementations read the parameters of Burn's.
struct Norm(LayerNorm);

impl MiniLm {
    /// Uploads the weights of a file in the format safetensors.
    pub(crate) fn load(file: &[u8], opened: &Opened) -> Result<Self, JsError> {
        cubenorm::set_tuning(cubenorm::Tuning::Auto);
        let weights = Weights::parse(file, &opened.device)?;
        let table =
            |name: &str, rows| weights.tensor(&format!("embeddings.{name}.weight"), [rows, HIDDEN]);
        Ok(Self {
            device: opened.device.clone(),
            words: table("word_embeddings", VOCABULARY)?,
            positions: table("position_embeddings", POSITIONS)?,
            types: table("token_type_embeddings", 2)?,
            norm: Norm::load(&weights, "embeddings.LayerNorm")?,
            layers: (0..LAYERS)
                .map(|layer| Layer::load(&weights, &format!("encoder.layer.{layer}")))
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) async fn embed(
        &self,
        ids: &[i32],
        tokens: usize,
        fused: bool,
    ) -> Result<Embedded, JsError> {
        let whole = tokens > 0 && tokens <= POSITIONS && ids.len().is_multiple_of(tokens);
        if !whole || ids.is_empty() {
            let (ids, most) = (ids.len(), POSITIONS);
            let message =
                format!("{ids} token ids: expected sentences of {tokens}, at most {most}");
            return Err(JsError::new(&message));
        }
        let in_vocabulary = |&id: &i32| usize::try_from(id).is_ok_and(|id| id < VOCABULARY);
        if let Some(id) = ids.iter().find(|id| !in_vocabulary(id)) {
            let message = format!("a token id is {id}: expected less than {VOCABULARY}");
            return Err(JsError::new(&message));
        }
        let shape = [ids.len() / tokens, tokens];
        let mask: Vec<f32> = ids.iter().map(|&id| f32::from(u8::from(id != 0))).collect();
        let mask = Tensor::<2>::from_data(TensorData::new(mask, shape), &self.device);
        let ids = TensorData::new(ids.to_vec(), shape);
        let ids = Tensor::<2, Int>::from_data(ids, &self.device);

        let mut embeddings = read(self.forward(&ids, &mask, fused)).await?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            embeddings = read(self.forward(&ids, &mask, fused)).await?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(Embedded {
            embeddings: embeddings.chunks(HIDDEN).map(<[f32]>::to_vec).collect(),
            milliseconds: times[RUNS / 2],
        })
    }

    /// Ids and mask: `[sentences, tokens]`; output: `[sentences, hidden]`.
    fn forward(&self, ids: &Tensor<2, Int>, mask: &Tensor<2>, fused: bool) -> Tensor<2> {
        let [sentences, tokens] = ids.dims();
        let words = embedding(self.words.clone(), ids.clone());
        let positions = self.positions.clone().narrow(0, 0, tokens);
        let places = positions + self.types.clone().narrow(0, 0, 1);
        let places = places.unsqueeze::<3>().expand([sentences, tokens, HIDDEN]);
        let mut hidden = self.norm.forward(words, places, fused);
        for layer in &self.layers {
            hidden = layer.forward(hidden, mask, fused);
        }
        let count = mask.clone().sum_dim(1);
        let sum = (hidden * mask.clone().unsqueeze_dim::<3>(2)).sum_dim(1);
        let mean = sum.squeeze_dim::<2>(1) / count;
        let length = mean.clone().square().sum_dim(1).sqrt();
        mean / length
    }
}

impl Layer {
    fn load(weights: &Weights, at: &str) -> Result<Self, JsError> {
        let dense = |name: &str, inputs, outputs| {
            Dense::load(weights, &format!("{at}.{name}"), inputs, outputs)
        };
        let norm = |name: &str| Norm::load(weights, &format!("{at}.{name}.LayerNorm"));
        Ok(Self {
            query: dense("attention.self.query", HIDDEN, HIDDEN)?,
            key: dense("attention.self.key", HIDDEN, HIDDEN)?,
            value: dense("attention.self.value", HIDDEN, HIDDEN)?,
            merge: dense("attention.output.dense", HIDDEN, HIDDEN)?,
            attention_norm: norm("attention.output")?,
            expand: dense("intermediate.dense", HIDDEN, INTERMEDIATE)?,
            output: dense("output.dense", INTERMEDIATE, HIDDEN)?,
            output_norm: norm("output")?,
        })
    }

    /// Input and output: `[sentences, tokens, hidden]`.
    fn forward(&self, hidden: Tensor<3>, mask: &Tensor<2>, fused: bool) -> Tensor<3> {
        let [sentences, tokens, _] = hidden.dims();
        let split = |dense: &Dense| {
            let heads = [sentences, tokens, HEADS, HIDDEN / HEADS];
            dense.forward(hidden.clone()).reshape(heads).swap_dims(1, 2)
        };
        let [query, key, value] = [&self.query, &self.key, &self.value].map(split);
        let padding = mask.clone().equal_elem(0.0);
        let padding = padding.reshape([sentences, 1, 1, tokens]);
        let padding = padding.expand([sentences, HEADS, tokens, tokens]);
        // As in `product`.
        let scores = query.unsqueeze_dim::<5>(3) * key.unsqueeze_dim::<5>(2);
        let scores = scores.sum_dim(4).squeeze_dim::<4>(4);
        let scores = scores / ((HIDDEN / HEADS) as f64).sqrt();
        let shares = softmax(scores.mask_fill(padding, -1e9), 3);
        let context = shares.unsqueeze_dim::<5>(4) * value.unsqueeze_dim::<5>(2);
        let context = context.sum_dim(3).squeeze_dim::<4>(3);
        let merged = context.swap_dims(1, 2).reshape([sentences, tokens, HIDDEN]);
        let attended = self.merge.forward(merged);
        let hidden = self.attention_norm.forward(attended, hidden, fused);
        let output = self
            .output
            .forward(gelu(self.expand.forward(hidden.clone())));
        self.output_norm.forward(output, hidden, fused)
    }
}

impl Dense {
    fn load(weights: &Weights, at: &str, inputs: usize, outputs: usize) -> Result<Self, JsError> {
        Ok(Self {
            weight: weights.tensor(&format!("{at}.weight"), [outputs, inputs])?,
            bias: weights.tensor(&format!("{at}.bias"), [outputs])?,
        })
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let [sentences, tokens, inputs] = input.dims();
        let rows = input.reshape([sentences * tokens, inputs]);
        let outputs = rows.split(ROWS, 0);
        let outputs = outputs.into_iter().map(|rows| product(rows, &self.weight));
        let outputs = Tensor::cat(outputs.collect(), 0) + self.bias.clone().unsqueeze();
        let width = outputs.dims()[1];
        outputs.reshape([sentences, tokens, width])
    }
}

/// Rows of a product: with the widest weight its terms have 38 MB, and every device binds 128 MB.
const ROWS: usize = 16;

/// `rows * weight^T`, as a sum of products.
///
/// Chromium refuses the matrix products of CubeCL 0.11: they have a barrier in a branch that may differ between units.
fn product(rows: Tensor<2>, weight: &Tensor<2>) -> Tensor<2> {
    let terms = rows.unsqueeze_dim::<3>(1) * weight.clone().unsqueeze_dim::<3>(0);
    terms.sum_dim(2).squeeze_dim(2)
}

impl Norm {
    fn load(weights: &Weights, at: &str) -> Result<Self, JsError> {
        let config = LayerNormConfig::new(HIDDEN).with_epsilon(EPSILON);
        let mut norm = config.init(&weights.device);
        norm.gamma = Param::from_tensor(weights.tensor(&format!("{at}.weight"), [HIDDEN])?);
        let beta = weights.tensor(&format!("{at}.bias"), [HIDDEN])?;
        norm.beta = Some(Param::from_tensor(beta));
        Ok(Self(norm))
    }

    fn forward(&self, input: Tensor<3>, residual: Tensor<3>, fused: bool) -> Tensor<3> {
        let Self(norm) = self;
        match fused {
            false => norm.forward(input + residual),
            true => {
                let beta = norm.beta.as_ref().map(Param::val);
                cubenorm::add_layer_norm(input, residual, norm.gamma.val(), beta, EPSILON).0
            }
        }
    }
}

/// A file in the format safetensors: a length, a JSON header of that length, and the tensors.
struct Weights<'a> {
    device: Device,
    header: HashMap<String, Entry>,
    content: &'a [u8],
}

/// An entry of the header. Its metadata have none of these fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl<'a> Weights<'a> {
    fn parse(file: &'a [u8], device: &Device) -> Result<Self, JsError> {
        let wrong = |why: &str| JsError::new(&format!("the file is no safetensors: {why}"));
        let Some((length, rest)) = file.split_first_chunk() else {
            return Err(wrong("it has less than 8 bytes"));
        };
        let length = usize::try_from(u64::from_le_bytes(*length)).ok();
        let Some((header, content)) = length.and_then(|length| rest.split_at_checked(length))
        else {
            return Err(wrong("its header is longer than the file"));
        };
        let header = serde_json::from_slice(header).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self {
            device: device.clone(),
            header,
            content,
        })
    }

    /// The tensor of this name.
    fn tensor<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>, JsError> {
        let Some(entry) = self.header.get(name) else {
            return Err(JsError::new(&format!("the file has no tensor {name}")));
        };
        if entry.dtype != "F32" || entry.shape != shape {
            let Entry {
                dtype,
                shape: actual,
                ..
            } = entry;
            let message = format!("{name} is {dtype} {actual:?}: expected F32 {shape:?}");
            return Err(JsError::new(&message));
        }
        let [start, end] = entry.data_offsets;
        let (chunks, _) = match self.content.get(start..end) {
            Some(bytes) if bytes.len() == 4 * shape.iter().product::<usize>() => {
                bytes.as_chunks::<4>()
            }
            _ => return Err(JsError::new(&format!("{name} is not whole in the file"))),
        };
        let values: Vec<f32> = chunks
            .iter()
            .map(|&chunk| f32::from_le_bytes(chunk))
            .collect();
        Ok(Tensor::from_data(
            TensorData::new(values, shape),
            &self.device,
        ))
    }
}
