//! Work counters of the dynamic schedule.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_environment::stream::StreamId;

use super::args::flat_arg;
use super::fill::zeroed_words;
use super::memory::upload;
use super::plan_cache::{Device, device};

/// Maximum number of streams with counters. Beyond it all are dropped; a launch keeps a reference
/// to its own.
const MOST: usize = 256;

/// Counters per allocation. The host's write waits for all work of the stream, so allocations are
/// batched.
const AT_ONCE: u64 = 64;

/// Bytes of a counter: one cache line, to avoid false sharing and to satisfy the alignment of
/// bindings.
const BYTES: u64 = 64;

/// Counters of a stream. Each is used by one launch only, because a failed launch makes its counter
/// unusable.
struct Counters {
    all: Handle,
    used: u64,
}

impl Counters {
    fn new(client: &Client) -> Self {
        Self {
            all: upload(client, &[0; (AT_ONCE * BYTES) as usize]),
            used: 0,
        }
    }

    fn next(&mut self, client: &Client) -> Handle {
        if self.used == AT_ONCE {
            *self = Self::new(client);
        }
        self.used += 1;
        let work_counter = self.all.clone();
        work_counter
            .offset_start((self.used - 1) * BYTES)
            .offset_end((AT_ONCE - self.used) * BYTES)
    }
}

/// Work counter for one launch on this thread's stream, initially 0.
pub(crate) fn work_counter(client: &Client) -> TensorArg {
    if client.is_capturing() {
        // A graph records launches and no writes of the host, and resets the counter in each replay.
        return flat_arg(&zeroed_words(client, 1), 1);
    }
    static COUNTERS: Mutex<Option<HashMap<(Device, StreamId), Counters>>> = Mutex::new(None);
    // An insertion is atomic: a panicking thread leaves a valid map.
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let counters = counters.get_or_insert_default();
    let stream = (device(client), StreamId::current());
    if counters.len() >= MOST && !counters.contains_key(&stream) {
        counters.clear();
    }
    let counters = counters.entry(stream);
    let work_counter = counters
        .or_insert_with(|| Counters::new(client))
        .next(client);
    flat_arg(&work_counter, 1)
}
