//! Plans of problems on described devices, without real ones.
//!
//! [`promises`] states what holds for plans. [`snapshots`] records the plans of typical problems,
//! one per line: review a change of them with `INSTA_UPDATE=always`, and explain it in the commit.

mod descs;
mod line;
mod promises;
mod snapshots;
