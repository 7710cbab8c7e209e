//! What CubeCL makes of cubenorm's kernels for devices that are not there.
//!
//! A [`Recorder`] is a device that reports the properties of another and keeps the kernels that are
//! launched on it; with the feature `compilers`, `Target::compile` turns a kernel into the text that
//! the runtime of that device hands to its driver. So a kernel is checked for every target on any
//! machine, and comes the same way as everywhere: description, plan, kernel, launch.
//!
//! | module | has |
//! | --- | --- |
//! | `recorder` | the device that remembers |
//! | `profile` | devices as CubeCL's runtimes report them |
//! | `catalogue` | problems that reach every kernel, strategy and part of a kernel |
//! | `survey` | the kernels that the catalogue comes to on a device |
//! | `representation` | a kernel as CubeCL has it |
//! | `target`, `compile` | what a kernel is compiled to, and how |
//! | `check` | whether it is right, where that takes no other program |

mod catalogue;
#[cfg(feature = "compilers")]
mod check;
#[cfg(feature = "compilers")]
mod compile;
mod profile;
mod recorder;
mod representation;
mod survey;
mod target;

pub use catalogue::{Breadth, Case, Work};
#[cfg(feature = "compilers")]
pub use check::check;
#[cfg(feature = "compilers")]
pub use compile::Source;
pub use profile::Profile;
pub use recorder::{Kernel, Recorder};
pub use representation::{CompileError, representation};
pub use survey::{Found, survey};
pub use target::{Language, Target};
