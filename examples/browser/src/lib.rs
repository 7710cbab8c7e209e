//! The norms on WebGPU, for a page in a browser.
//!
//! The page asks for one step at a time: a case of the check, a measurement, an embedding. Between two steps it can
//! stop, and a step that never ends is noticed. Each function returns JSON.
//!
//! - `exports`: the functions that the page calls
//! - `device`: the device, and its errors
//! - `check`: every norm, and every strategy of the kernels, against float64
//! - `speed`: both passes next to Burn's own operations and a copy
//! - `minilm`: sentence embeddings with fused and with Burn's norms
//!
//! On other targets this crate is empty.

#[cfg(target_arch = "wasm32")]
mod check;
#[cfg(target_arch = "wasm32")]
mod device;
#[cfg(target_arch = "wasm32")]
mod exports;
#[cfg(target_arch = "wasm32")]
mod minilm;
#[cfg(target_arch = "wasm32")]
mod speed;

#[cfg(target_arch = "wasm32")]
pub use exports::*;
