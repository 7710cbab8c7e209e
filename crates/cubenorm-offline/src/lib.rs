//! Offline compilation of cubenorm's kernels with CubeCL, without the devices.
//!
//! A [`Recorder`] is a device that reports the properties of another and records the kernels
//! launched on it. With the feature `compilers`, `Target::compile` turns a kernel into the code
//! that the device's runtime passes to its driver. Every target can thus be checked on any machine,
//! through the usual steps: description, plan, kernel, launch.
//!
//! | module | has |
//! | --- | --- |
//! | `recorder` | the recording device |
//! | `profile` | devices as CubeCL's runtimes report them |
//! | `catalogue` | problems that reach every kernel, strategy and part of a kernel |
//! | `survey` | the kernels that the catalogue launches on a device |
//! | `representation` | a kernel in CubeCL's representation |
//! | `target`, `compile` | compilation targets and their compilers |
//! | `check` | validation that needs no other program |

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
