//! One file per verb, and what several of them share.

pub mod accuracy;
pub mod bench;
pub mod ci;
pub mod codegen;
pub mod conformance;
pub mod demo;
pub mod devices;
pub mod explain;
pub mod features;
pub mod gpu_check;
mod libraries;
mod outcome;
pub mod package;
mod program;
mod selection;
pub mod test;
pub mod tune;
pub mod verify;
pub mod wasm;
