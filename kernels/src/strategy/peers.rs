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

/// Rounds whose words are apart. A cube tells of a round when it has heard of the one two before, of which those that
/// it has heard tell when they have heard of the one four before: what was told three rounds before some of them may
/// yet have to read, but nothing older, as long as all wait for each other. What one that did not wait writes over is
/// a word of another round to whoever looks for it.
const ROUNDS: usize = 4;

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

/// The first of a team's words of a round.
#[cube]
fn first_word(round: usize, #[comptime] team: Team) -> usize {
    let peers = comptime!(team.peers as usize);
    (CUBE_POS / peers * ROUNDS + round % ROUNDS) * comptime!(peers * SUMS)
}

/// Zero is what nobody has written yet.
#[cube]
fn tag(round: usize) -> u64 {
    u64::cast_from(round + 1)
}

/// Tells the cubes of a team what this one has found in a round.
#[cube]
pub(crate) fn tell<A: Float, N: Size>(
    mine: &Moments<A, N>,
    words: &Words,
    round: usize,
    #[comptime] team: Team,
) {
    let words = words.as_ref().unwrap();
    if member(team) == 0 {
        let slot = first_word(round, team) + part(team) * SUMS;
        let tag = tag(round);
        words[slot].store(word::<A>(mine.mean.extract(0usize), tag));
        words[slot + 1].store(word::<A>(mine.m2.extract(0usize), tag));
    }
}

/// A first look at a round's words, each by one unit.
#[cube]
pub(crate) fn look(words: &Words, round: usize, #[comptime] team: Team) -> u64 {
    let words = words.as_ref().unwrap();
    let unit = member(team);
    let mut found = 0u64;
    if unit < comptime!(team.peers as usize * SUMS) {
        found = words[first_word(round, team) + unit].load();
    }
    found
}

/// Adds up what the cubes of a team have found, each in so many vectors of a unit, in the order of their parts;
/// every unit gets the result. `found` is what [`look`] has.
///
/// Called by all units of all cubes of a team alike, once a round. Between two calls the units of a cube wait
/// for each other.
#[cube]
pub(crate) fn hear<A: Float, N: Size>(
    found: u64,
    words: &Words,
    round: usize,
    #[comptime] vectors: usize,
    #[comptime] team: Team,
) -> Heard<A, N> {
    let words = words.as_ref().unwrap();
    let peers = comptime!(team.peers as usize);
    let first = first_word(round, team);
    let tag = tag(round);
    let unit = member(team);
    let mut sums = Shared::<[f32]>::new_slice(comptime!(peers * SUMS));
    let mut came = Shared::<[u32]>::new_slice(comptime!(peers * SUMS));
    if unit < comptime!(peers * SUMS) {
        let mut found = found;
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
            // Nobody counts sums.
            count: A::new(0.0),
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
