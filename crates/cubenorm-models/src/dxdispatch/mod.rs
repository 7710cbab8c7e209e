//! Models of DxDispatch, DirectML's command-line tool: JSON files of buffers, operators and commands.
//!
//! The format is the tool's (`DxDispatch/doc/Guide.md` in microsoft/DirectML), restricted to the
//! operators of [`cubenorm_operators::directml`]. This crate is stricter than the tool: it checks
//! tensors, bindings, files and all commands before it runs the first command.
//! is done.
//!
//! [`Model::read`] reads a file, [`Session::new`] checks and allocates, [`Session::run`] runs it.

mod error;
mod fields;
mod json;
mod model;
mod operator;
mod parse;
mod session;
mod values;

pub use error::ModelError;
pub use model::{Binding, Command, Dispatchable, Model, Resource, Tensor};
pub use session::{Event, Options, RunError, Session};
pub use values::{Element, InitialValues};
