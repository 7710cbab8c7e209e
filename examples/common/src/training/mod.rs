//! Training of one model with two implementations of norms, compared in loss, time and memory.
//!
//! - [`Trainer`]: a model in training, and [`Run`]: its measurements
//! - [`Schedule`]: trains several models in turns
//! - [`Command`]: the command line and the report
//! - [`Check`]: a condition that runs must meet
//! - [`plot`]: loss curves as a picture
//! - [`table`]: times and memory as text

mod check;
mod command;
mod memory;
mod plot;
mod random;
mod report;
mod schedule;
mod trainer;

pub use check::{AGREEING_STEPS, Check, LOSS_TOLERANCE, largest_difference, losses_agree};
pub use command::Command;
pub use memory::Memory;
pub use plot::plot;
pub use random::Random;
pub use report::{Outcome, checks, table};
pub use schedule::{Schedule, cross_entropy};
pub use trainer::{Run, Trainer};
