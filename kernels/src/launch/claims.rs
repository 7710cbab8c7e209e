//! What teams count with that claim their items while a launch runs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_environment::stream::StreamId;

use super::args::flat_arg;
use super::memo::{Device, device};

/// Streams whose counters are kept at most. Then all are made anew: a launch keeps the one that it has.
const MOST: usize = 1024;

/// Bytes of a counter: a line of its own, in which nobody else writes.
const BYTES: usize = 64;

/// The counter of this thread's stream, which each launch leaves at 0.
///
/// Launches of one stream run one after the other, those of two may run at the same time.
pub(crate) fn counter(client: &Client) -> TensorArg {
    static COUNTERS: Mutex<Option<HashMap<(Device, StreamId), Handle>>> = Mutex::new(None);
    // A map that a panicking thread left behind is whole: entries are put in at once.
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let counters = counters.get_or_insert_default();
    let stream = (device(client), StreamId::current());
    if counters.len() >= MOST && !counters.contains_key(&stream) {
        counters.clear();
    }
    let counter = counters
        .entry(stream)
        .or_insert_with(|| client.create_from_slice(&[0; BYTES]));
    flat_arg(counter, 1)
}
