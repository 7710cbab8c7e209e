//! ONNX models of one node.
//!
//! [`Node::read`] reads a model, [`Prepared::new`] gives it its inputs, [`Prepared::run`] runs it.
//!
//! Only the parts of a file that the node needs are decoded: initializers that it does not read are
//! skipped, whatever their type.

mod external;
mod node;
pub mod proto;
mod run;
mod tensor;
mod tensor_error;
mod wire;

pub use node::{Node, NodeError, Value};
pub use run::{BindError, Prepared};
pub use tensor::{read_tensor, write_tensor};
pub use tensor_error::TensorError;
pub use wire::WireError;
