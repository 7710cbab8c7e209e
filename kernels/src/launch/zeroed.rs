//! Zeroed memory that each launch takes anew: work counters of the dynamic schedule, and words of clusters.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_environment::stream::StreamId;

use super::args::flat_arg;
use super::fill::zeroed_words;
use super::memory::{is_watched, upload};
use super::plan_cache::{Device, device};

/// Maximum number of streams with zeros. Beyond it all are dropped; a launch keeps a reference to
/// its own.
const MOST: usize = 256;

/// Bytes of a work counter: one cache line, to avoid false sharing and to satisfy the alignment of
/// bindings.
const COUNTER: usize = 64;

/// Work counters per allocation. The host's write waits for all work of the stream, so allocations
/// are batched.
const COUNTERS: usize = 64;

/// Bytes of the words that one launch sets to zero, for many launches of clusters.
const WORDS: usize = 1 << 18;

/// Bytes that two launches do not share, of any GPU.
const APART: usize = 256;

/// The purpose of zeros, with the kind of allocation that suits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    WorkCounter,
    ClusterWords,
}

impl Purpose {
    /// Allocates the zeros of many launches, and returns their bytes.
    fn allocate(self, client: &Client) -> (Handle, usize) {
        match self {
            Self::WorkCounter => {
                let zeros = [0; COUNTERS * COUNTER];
                (upload(client, &zeros), zeros.len())
            }
            Self::ClusterWords => (zeroed_words(client, WORDS / 8), WORDS),
        }
    }
}

/// Zeros of a stream. Each piece is used by one launch only, because a failed launch makes it
/// unusable.
struct Zeros {
    all: Handle,
    bytes: usize,
    used: usize,
}

impl Zeros {
    fn new(client: &Client, purpose: Purpose) -> Self {
        let (all, bytes) = purpose.allocate(client);
        Self {
            all,
            bytes,
            used: 0,
        }
    }

    /// The next `bytes` bytes, which an allocation has.
    fn next(&mut self, client: &Client, purpose: Purpose, bytes: usize) -> Handle {
        if self.used + bytes > self.bytes {
            *self = Self::new(client, purpose);
        }
        let first = self.used;
        self.used += bytes;
        let all = self.all.clone().offset_start(first as u64);
        all.offset_end((self.bytes - self.used) as u64)
    }
}

/// Zeros for one launch on this thread's stream.
fn piece(client: &Client, purpose: Purpose, bytes: usize) -> Handle {
    type OfStreams = HashMap<(Device, StreamId, Purpose), Zeros>;
    static ZEROS: Mutex<Option<OfStreams>> = Mutex::new(None);
    // An insertion is atomic: a panicking thread leaves a valid map.
    let mut zeros = ZEROS.lock().unwrap_or_else(PoisonError::into_inner);
    let zeros = zeros.get_or_insert_default();
    let stream = (device(client), StreamId::current(), purpose);
    if zeros.len() >= MOST && !zeros.contains_key(&stream) {
        zeros.clear();
    }
    let zeros = zeros.entry(stream);
    zeros
        .or_insert_with(|| Zeros::new(client, purpose))
        .next(client, purpose, bytes)
}

/// Work counter for one launch on this thread's stream, initially 0.
pub(crate) fn work_counter(client: &Client) -> TensorArg {
    let counter = match client.is_capturing() {
        // A graph records launches and no writes of the host, and resets the counter in each replay.
        true => zeroed_words(client, 1),
        false => piece(client, Purpose::WorkCounter, COUNTER),
    };
    flat_arg(&counter, 1)
}

/// `words` words for the clusters of one launch on this thread's stream, initially 0.
pub(crate) fn cluster_words(client: &Client, words: usize) -> TensorArg {
    let bytes = (8 * words).next_multiple_of(APART);
    let is_alone = client.is_capturing() || is_watched() || bytes > WORDS / 2;
    let all = match is_alone {
        // As above.
        true => zeroed_words(client, words),
        false => piece(client, Purpose::ClusterWords, bytes),
    };
    flat_arg(&all, words)
}
