//! The functions that the page calls.

use js_sys::Function;
use serde::Serialize;
use wasm_bindgen::prelude::*;

use crate::{check as checks, device, minilm, speed};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn error(message: &str);
}

/// Prints panics to the console. A panic then traps, and the page sees an error of the worker.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|info| error(&info.to_string())));
}

/// Opens the device and returns its properties.
///
/// With `guaranteed`, its limits on buffers and shared memory are the ones that WebGPU guarantees. `report` is called
/// with a kind (`lost`, `memory` or `validation`) and a message if the device fails later.
///
/// # Errors
///
/// If there is no adapter, or it refuses a device.
#[wasm_bindgen]
pub async fn open(guaranteed: bool, report: Function) -> Result<String, JsError> {
    device::open(guaranteed, report).await.and_then(json)
}

/// Titles of the cases of the check, in order.
#[wasm_bindgen]
pub fn check_cases() -> Result<String, JsError> {
    json(checks::titles())
}

/// Runs a case of the check.
///
/// # Errors
///
/// If there is no such case, or the device fails.
#[wasm_bindgen]
pub async fn check(case: usize) -> Result<String, JsError> {
    checks::run(case).await.and_then(json)
}

/// Titles of the measurements, in order. The first is the copy.
#[wasm_bindgen]
pub fn speed_cases() -> Result<String, JsError> {
    json(speed::titles())
}

/// Measures one operation on tensors of `elements` elements.
///
/// # Errors
///
/// If there is no such measurement, or the device fails.
#[wasm_bindgen]
pub async fn measure(case: usize, elements: usize) -> Result<String, JsError> {
    speed::run(case, elements).await.and_then(json)
}

/// The network of sentence embeddings, with its weights on the device.
#[wasm_bindgen]
pub struct MiniLm(minilm::MiniLm);

#[wasm_bindgen]
impl MiniLm {
    /// Uploads the weights of a `model.safetensors`.
    ///
    /// # Errors
    ///
    /// If a tensor is missing or has another shape, or no device is open.
    #[wasm_bindgen(constructor)]
    pub fn new(file: &[u8]) -> Result<Self, JsError> {
        Ok(Self(minilm::MiniLm::load(file, &device::opened()?)?))
    }

    /// Embeds sentences of token ids, `tokens` each, padded with 0. Returns the embeddings and the median time.
    ///
    /// # Errors
    ///
    /// If the ids are no whole sentences, or the device fails.
    pub async fn embed(
        &self,
        ids: Vec<i32>,
        tokens: usize,
        fused: bool,
    ) -> Result<String, JsError> {
        self.0.embed(&ids, tokens, fused).await.and_then(json)
    }
}

fn json(value: impl Serialize) -> Result<String, JsError> {
    Ok(serde_json::to_string(&value)?)
}
