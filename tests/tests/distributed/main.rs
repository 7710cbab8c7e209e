//! Norms over several members, on every runtime of the build.

mod sums;
