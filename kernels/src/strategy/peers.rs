//! A row for several cubes, each with its own part of every row.
//!
//! What they find meets in the device's memory. A sum and the round that it belongs to are one word, written and
//! read at once: whoever finds the round it waits for has its sum as well, and nothing else has to be ordered.
//!
//! Nobody says that all cubes of a launch run at the same time. A cube that has waited for long therefore finds
//! out itself what is missing, and no cube depends on another one to end.

use cubecl::prelude::*;
use cubenorm_core::Team;

use super::member;
use crate::moments::Moments;

/// What the cubes of teams tell each other: words of zeros before the launch.
pub(crate) type Words = ComptimeOption<OwnedTensor<Atomic<u64>>>;

/// Sums that a cube tells the others in a round.
const SUMS: usize = 2;

/// Rounds whose words are apart. A cube that is in the next round already may have others behind it that have
/// yet to read this one's, but none that is in the round before, as long as all wait for each other. What one
/// that did not wait writes over is a word of another round to whoever looks for it.
const ROUNDS: usize = 2;

/// How often a cube looks for what another has found: some tenths of a millisecond. Of a part that has one vector
/// for each unit once, as finding out oneself takes no longer than looking.
const PATIENCE: u32 = 256;

const fn patience(vectors: usize) -> u32 {
    match vectors {
        0 | 1 => 1,
        _ => PATIENCE,
    }
}

/// Words of a team of so many cubes.
pub(crate) const fn words(peers: usize) -> usize {
    ROUNDS * peers * SUMS
}

/// This cube's part of each row.
#[cube]
pub(crate) fn part(#[comptime] team: Team) -> usize {
    CUBE_POS % comptime!(team.peers as usize)
}

/// What all cubes of a team have found.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Heard<A: Float, N: Size> {
    pub(crate) sums: Moments<A, N>,
    /// Whether it is what all of them have found. Of some that is not known, where it is not.
    pub(crate) is_all: bool,
}

/// Adds up what the cubes of a team have found, each in so many vectors of a unit, in the order of their parts;
/// every unit gets the result.
///
/// Called by all units of all cubes of a team alike, once a round. Between two calls the units of a cube wait
/// for each other.
#[cube]
pub(crate) fn meet<A: Float, N: Size>(
    mine: &Moments<A, N>,
    words: &Words,
    round: usize,
    #[comptime] vectors: usize,
    #[comptime] team: Team,
) -> Heard<A, N> {
    let words = words.as_ref().unwrap();
    let peers = comptime!(team.peers as usize);
    let first = (CUBE_POS / peers * ROUNDS + round % ROUNDS) * comptime!(peers * SUMS);
    // Zero is what nobody has written yet.
    let tag = u64::cast_from(round + 1);
    let unit = member(team);
    if unit == 0 {
        let slot = first + part(team) * SUMS;
        words[slot].store(word::<A>(mine.mean.extract(0usize), tag));
        words[slot + 1].store(word::<A>(mine.m2.extract(0usize), tag));
    }
    let mut sums = Shared::<[f32]>::new_slice(comptime!(peers * SUMS));
    let mut came = Shared::<[u32]>::new_slice(comptime!(peers * SUMS));
    if unit < comptime!(peers * SUMS) {
        let mut found = words[first + unit].load();
        let mut looks = 1u32;
        while found >> 32u64 != tag && looks < comptime!(patience(vectors)) {
            found = words[first + unit].load();
            looks += 1;
        }
        sums[unit] = f32::reinterpret(u32::cast_from(found & 0xffff_ffffu64));
        came[unit] = u32::cast_from(found >> 32u64 == tag);
    }
    sync_cube();
    let mut mean = sums[0];
    let mut m2 = sums[1];
    let mut count = came[0] + came[1];
    #[unroll]
    for peer in 1..peers {
        let slot = comptime!(peer * SUMS);
        mean += sums[slot];
        m2 += sums[comptime!(slot + 1)];
        count += came[slot] + came[comptime!(slot + 1)];
    }
    Heard::<A, N> {
        sums: Moments::<A, N> {
            count: mine.count,
            mean: Vector::new(A::cast_from(mean)),
            m2: Vector::new(A::cast_from(m2)),
        },
        is_all: count == comptime!((peers * SUMS) as u32),
    }
}

/// A sum and its round.
#[cube]
fn word<A: Float>(sum: A, tag: u64) -> u64 {
    let bits = u32::reinterpret(f32::cast_from(sum));
    tag << 32u64 | u64::cast_from(bits)
}
