//! Partial statistics or sums of rows that several teams share.

use cubecl::prelude::*;

use crate::memory::access::Optional;
use crate::reduce::cluster::Words;

/// Partial results of rows that several teams share: from an earlier launch, or from cooperating
/// cubes of this one.
#[derive(CubeType)]
pub(crate) struct Partials<'a, A: Float, W: Size> {
    pub(crate) parts: &'a Optional<A, W>,
    pub(crate) words: &'a Words,
}

#[cube]
impl<'a, A: Float, W: Size> Partials<'a, A, W> {
    pub(crate) fn new(parts: &'a Optional<A, W>, words: &'a Words) -> Partials<'a, A, W> {
        Partials::<'a, A, W> { parts, words }
    }
}
