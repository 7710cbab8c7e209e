//! Whether a cache or a bundle has an answer that nobody in this process has asked for.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use cubecl::environment;
use cubecl::tune::{TuneCacheResult, Tuner};

use super::NAME;
use super::key::TuneKey;

/// What each device's cache had when it was looked at, in the environment of that generation: a tuner that tunes nothing.
type Caches = HashMap<String, (u32, Tuner<TuneKey>)>;

/// Whether there is an answer. CubeCL's tuner tells only with an answer, and measures where it has none.
pub(super) fn is_kept(device: &str, key: &TuneKey) -> bool {
    static CACHES: LazyLock<Mutex<Caches>> = LazyLock::new(Mutex::default);
    // An entry is inserted at once: what a panicking thread left behind is whole.
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    let now = environment::generation();
    let read = || (now, Tuner::new(NAME, device));
    let cache = caches.entry(device.to_owned()).or_insert_with(read);
    if cache.0 != now {
        *cache = read();
    }
    matches!(cache.1.fastest(key), TuneCacheResult::Unchecked)
}
