//! What was the fastest for problems like one that is to be measured.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::kept;
use super::key::TuneKey;

/// Of each device the keys that this process has asked for, and the places of their knobs.
type Known = HashMap<String, HashMap<TuneKey, usize>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    // An entry is inserted at once: what a panicking thread left behind is whole.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what was the fastest for a key.
pub(super) fn remember(device: &str, key: TuneKey, place: usize) {
    known()
        .entry(device.to_owned())
        .or_default()
        .insert(key, place);
}

/// The place of what was the fastest for the key of this operation that is the nearest in size, of those that this process
/// has asked for and those that are [kept].
pub(super) fn nearest(device: &str, key: &TuneKey) -> Option<usize> {
    let distance = |(other, place): (&TuneKey, usize)| {
        // Of two that are as near the smaller, so that the order of a map decides nothing.
        Some(((key.distance(other)?, other.rows, other.cols), place))
    };
    let kept = kept::look(device, |answers| {
        let answers = answers.iter().map(|(key, (place, _))| (key, *place));
        answers.filter_map(distance).min()
    });
    let known = known();
    let known = known.get(device).into_iter().flatten();
    let known = known.map(|(key, place)| (key, *place));
    let nearest = known.filter_map(distance).chain(kept).min();
    nearest.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use cubecl::environment;
    use cubecl::tune::{PersistentCacheKey, PersistentCacheValue};

    use super::*;

    fn key(rows: usize, cols: usize) -> TuneKey {
        TuneKey {
            operation: "forward".into(),
            dtypes: "f32/f32".into(),
            layout: "x1+1v".into(),
            rows,
            cols,
            vector: 4,
            candidates: vec![0, 3, 5],
        }
    }

    #[test]
    fn the_nearest_size_of_the_same_operation_on_the_same_device_is_taken() {
        let device = "warm-test";
        assert_eq!(nearest(device, &key(64, 64)), None);
        remember(device, key(1024, 512), 3);
        remember(device, key(64, 1024), 5);
        remember("another", key(64, 64), 0);
        let other = TuneKey {
            operation: "backward".into(),
            ..key(64, 64)
        };
        remember(device, other, 0);
        assert_eq!(nearest(device, &key(64, 64)), Some(5));
        assert_eq!(nearest(device, &key(2048, 256)), Some(3));
    }

    #[test]
    fn what_another_process_has_kept_is_as_good() {
        let root = std::env::temp_dir().join(format!("cubenorm-kept-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        // Reading CubeCL's configuration activates the environment that it names, so not after this one.
        CubeClRuntimeConfig::get();
        environment::set_root(&root);
        environment::activate("kept");
        let device = "kept-test";
        remember(device, key(64, 4096), 3);
        let entry = PersistentCacheKey {
            key: key(64, 1024),
            checksum: "of these".into(),
        };
        let value = PersistentCacheValue {
            fastest_index: 5,
            results: Vec::new(),
            bounds: None,
            limit: None,
        };
        kept::store(device).insert(entry, value).unwrap();
        assert_eq!(nearest(device, &key(64, 512)), Some(5));
        assert_eq!(
            nearest(device, &key(64, 2048)),
            Some(5),
            "the smaller of two"
        );
        assert_eq!(nearest(device, &key(64, 8192)), Some(3));
        assert!(kept::is_kept(device, &key(64, 1024), "of these"));
        assert!(!kept::is_kept(device, &key(64, 1024), "of others"));
        assert!(!kept::is_kept(device, &key(64, 512), "of these"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
