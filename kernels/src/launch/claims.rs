//! What teams count with that claim their items while a launch runs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_environment::stream::StreamId;

use super::args::flat_arg;
use super::memo::{Device, device};

/// Streams whose counters are kept at most. Then all are made anew: a launch keeps the one that it has.
const MOST: usize = 256;

/// Counters that are made at once: a stream waits for all that it has begun before the host writes.
const AT_ONCE: u64 = 64;

/// Bytes of a counter: a line of its own, in which nobody else writes, and to which memory is aligned.
const BYTES: u64 = 64;

/// Counters of a stream, of which each is for one launch. What a launch that failed would have counted has failed with
/// it, and may not be asked for again.
struct Counters {
    all: Handle,
    used: u64,
}

impl Counters {
    fn new(client: &Client) -> Self {
        Self {
            all: client.create_from_slice(&[0; (AT_ONCE * BYTES) as usize]),
            used: 0,
        }
    }

    fn next(&mut self, client: &Client) -> Handle {
        if self.used == AT_ONCE {
            *self = Self::new(client);
        }
        self.used += 1;
        let counter = self.all.clone();
        counter
            .offset_start((self.used - 1) * BYTES)
            .offset_end((AT_ONCE - self.used) * BYTES)
    }
}

/// A counter of this thread's stream for one launch, which is 0.
pub(crate) fn counter(client: &Client) -> TensorArg {
    static COUNTERS: Mutex<Option<HashMap<(Device, StreamId), Counters>>> = Mutex::new(None);
    // A map that a panicking thread left behind is whole: entries are put in at once.
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let counters = counters.get_or_insert_default();
    let stream = (device(client), StreamId::current());
    if counters.len() >= MOST && !counters.contains_key(&stream) {
        counters.clear();
    }
    let counters = counters.entry(stream);
    let counter = counters
        .or_insert_with(|| Counters::new(client))
        .next(client);
    flat_arg(&counter, 1)
}
