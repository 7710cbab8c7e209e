//! One file per verb.

pub mod accuracy;
pub mod bench;
pub mod ci;
pub mod conformance;
pub mod demo;
pub mod devices;
pub mod test;
pub mod verify;
