//! One file per verb, and what several of them share.

pub(crate) mod accuracy;
pub(crate) mod bench;
pub(crate) mod ci;
pub(crate) mod codegen;
pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod explain;
pub(crate) mod features;
pub(crate) mod gpu_check;
mod libraries;
pub(crate) mod models;
mod outcome;
pub(crate) mod package;
mod program;
mod selection;
pub(crate) mod test;
pub(crate) mod tune;
pub(crate) mod verify;
pub(crate) mod wasm;
pub(crate) mod web;
