//! ONNX models of one node.
//!
//! [`Node::read`] reads a model, [`Prepared::new`] gives it its inputs, [`Prepared::run`] runs it.

mod node;
pub mod proto;
mod run;
mod tensor;

pub use node::{Node, NodeError, Value};
pub use run::{BindError, Prepared};
pub use tensor::{TensorError, read_tensor, write_tensor};
