//! One file per verb.

pub mod bench;
pub mod ci;
pub mod demo;
pub mod test;
