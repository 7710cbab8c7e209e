//! One file per verb, and what several of them share.

pub mod accuracy;
pub mod bench;
pub mod ci;
pub mod conformance;
pub mod demo;
pub mod devices;
pub mod explain;
mod selection;
pub mod test;
pub mod tune;
pub mod verify;
