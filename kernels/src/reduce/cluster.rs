//! Cluster of cubes that reduce one row together. Each cube holds one part of every row.
//!
//! Protocol, per cluster and round (one row per round):
//!
//! 1. A cube publishes its two partial sums in its own slot. One 64-bit atomic word holds a sum and
//!    its round tag.
//! 2. A reader that sees the awaited tag also has the sum, so no fence between cubes is needed. A
//!    cube barrier separates the units that read a round from the unit that publishes the next.
//! 3. Slots form a ring of [`ROUNDS`] rounds. A cube publishes round `r` only after it has read
//!    every peer's round `r - 2`: it publishes one round ahead of the one it waits for.
//! 4. So a peer that published round `r - 2` had read every slot of round `r - 4`. Once a cube has
//!    read all words of round `r - 2`, nobody needs round `r - 4`, whose slot round `r` takes.
//! 5. A cube that timed out in a round may break rule 3 and overwrite a slot early. The tag makes
//!    readers reject that word.
//! 6. A reader polls a bounded number of times, then recomputes all parts of the row from memory.
//!    Every cube terminates, even if the cubes of a cluster do not run at the same time.
//! 7. Recomputed parts have the bits of published ones: both are summed in the same order. Inputs
//!    do not change meanwhile, since the results of a cluster overlap nothing that is read.
//!
//! The plan has a whole number of clusters, and at least one unit per word of a round.

use cubecl::prelude::*;
use cubenorm_core::{ROUNDS, SUMS, Team};

use crate::reduce::moments::Moments;
use crate::schedule::team::{member, own_part};

/// Slots of all clusters: zeros before the launch. No round has the tag zero.
pub(crate) type Words = ComptimeOption<OwnedTensor<Atomic<u64>>>;

/// Polls before a cube recomputes all parts of the row: a few tenths of a millisecond. A
/// part of one vector per unit is polled once, since recomputing it takes no longer than a poll.
pub(crate) const MAX_POLLS: u32 = 256;

/// Polls for a part of `vectors` vectors per unit.
pub(crate) const fn max_polls(vectors: usize) -> u32 {
    match vectors {
        0 | 1 => 1,
        _ => MAX_POLLS,
    }
}

/// Sums of all cubes of a cluster, as read by one of them.
#[derive(CubeType)]
pub(crate) struct Received {
    sums: Sequence<f32>,
    /// True if every word had the awaited tag; else the sums are meaningless.
    pub(crate) is_all: bool,
}

#[cube]
impl Received {
    /// Moments of the part of a cube, which has `count` elements.
    pub(crate) fn part<A: Float, N: Size>(
        &self,
        #[comptime] cube: usize,
        count: A,
    ) -> Moments<A, N> {
        let slot = comptime!(cube * SUMS);
        Moments::<A, N> {
            count,
            mean: Vector::new(A::cast_from(*self.sums.index(slot))),
            m2: Vector::new(A::cast_from(*self.sums.index(comptime!(slot + 1)))),
        }
    }

    /// Plain sums of all parts, added in their order.
    pub(crate) fn added<A: Float, N: Size>(&self, #[comptime] team: Team) -> Moments<A, N> {
        let mut mean = *self.sums.index(0usize);
        let mut m2 = *self.sums.index(1usize);
        #[unroll]
        for cube in 1..comptime!(team.cluster_size() as usize) {
            let slot = comptime!(cube * SUMS);
            mean += *self.sums.index(slot);
            m2 += *self.sums.index(comptime!(slot + 1));
        }
        Moments::<A, N> {
            // Plain sums have no count.
            count: A::new(0.0),
            mean: Vector::new(A::cast_from(mean)),
            m2: Vector::new(A::cast_from(m2)),
        }
    }
}

/// Index of a cluster's first word of a round.
#[cube]
fn first_word(round: usize, #[comptime] team: Team) -> usize {
    let cluster_size = comptime!(team.cluster_size() as usize);
    (CUBE_POS / cluster_size * ROUNDS + round % ROUNDS) * comptime!(cluster_size * SUMS)
}

/// Tag of a round. Zero is left for words that have not been written.
#[cube]
fn tag(round: usize) -> u64 {
    u64::cast_from(round + 1)
}

/// Publishes this cube's sums of a round to the cluster.
#[cube]
pub(crate) fn publish<A: Float, N: Size>(
    mine: &Moments<A, N>,
    words: &Words,
    round: usize,
    #[comptime] team: Team,
) {
    let words = words.as_ref().unwrap();
    if member(team) == 0 {
        let slot = first_word(round, team) + own_part(team) * SUMS;
        let tag = tag(round);
        words[slot].store(word::<A>(mine.mean.extract(0usize), tag));
        words[slot + 1].store(word::<A>(mine.m2.extract(0usize), tag));
    }
}

/// Polls the words of a round once, one word per unit.
#[cube]
pub(crate) fn poll(words: &Words, round: usize, #[comptime] team: Team) -> u64 {
    let words = words.as_ref().unwrap();
    let unit = member(team);
    let mut found = 0u64;
    if unit < comptime!(team.cluster_size() as usize * SUMS) {
        found = words[first_word(round, team) + unit].load();
    }
    found
}

/// Waits for the sums of all cubes of a cluster. Every unit gets them.
///
/// `found` is the result of [`poll`].
///
/// All units of a cube call this once a round. A cube barrier separates two calls.
#[cube]
pub(crate) fn wait(
    found: u64,
    words: &Words,
    round: usize,
    #[comptime] polls: u32,
    #[comptime] team: Team,
) -> Received {
    let words = words.as_ref().unwrap();
    let cluster_size = comptime!(team.cluster_size() as usize);
    let first = first_word(round, team);
    let tag = tag(round);
    let unit = member(team);
    let mut sums = Shared::<[f32]>::new_slice(comptime!(cluster_size * SUMS));
    let mut came = Shared::<[u32]>::new_slice(comptime!(cluster_size * SUMS));
    if unit < comptime!(cluster_size * SUMS) {
        let mut found = found;
        let mut looks = 1u32;
        while found >> 32u64 != tag && looks < polls {
            found = words[first + unit].load();
            looks += 1;
        }
        sums[unit] = f32::reinterpret(u32::cast_from(found & 0xffff_ffffu64));
        came[unit] = u32::cast_from(found >> 32u64 == tag);
    }
    sync_cube();
    let mut received = Sequence::<f32>::new();
    let mut count = 0u32;
    #[unroll]
    for slot in 0..comptime!(cluster_size * SUMS) {
        received.push(sums[slot]);
        count += came[slot];
    }
    Received {
        sums: received,
        is_all: count == comptime!((cluster_size * SUMS) as u32),
    }
}

/// Packs a sum and its round tag in one word.
#[cube]
fn word<A: Float>(sum: A, tag: u64) -> u64 {
    let bits = u32::reinterpret(f32::cast_from(sum));
    tag << 32u64 | u64::cast_from(bits)
}
