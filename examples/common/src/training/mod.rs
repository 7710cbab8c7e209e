//! The same model trained with two kinds of norm, side by side: what differs in the loss, in time
//! and in memory.
//!
//! - [`Trainer`]: one model that learns, and [`Run`]: what it measured
//! - [`Check`]: what two runs have to agree on
//! - [`plot`]: their loss curves as a picture
//! - [`table`]: their times and memory as text

mod check;
mod memory;
mod plot;
mod random;
mod rate;
mod report;
mod trainer;

pub use check::{AGREEING_STEPS, Check, LOSS_TOLERANCE, largest_difference, losses_agree};
pub use memory::Memory;
pub use plot::plot;
pub use random::Random;
pub use rate::rate;
pub use report::{Outcome, checks, table};
pub use trainer::{Run, Trainer};
