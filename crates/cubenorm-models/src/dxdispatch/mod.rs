//! Models of DxDispatch, DirectML's command-line tool: JSON files of buffers, operators and commands.
//!
//! The format is the tool's (`DxDispatch/doc/Guide.md` in microsoft/DirectML), as far as it is about
//! the operators of [`cubenorm_operators::directml`]. Where this differs from the tool it is stricter:
//! tensors, bindings and files are checked before anything runs, and every command before the first
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
