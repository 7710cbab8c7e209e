//! What was the fastest for problems like one that is to be measured.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::key::TuneKey;

/// Of each device the keys that were tuned in this process, or found in its cache, and the places of their
/// knobs.
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

/// The place of what was the fastest for the key of this operation that is the nearest in size.
pub(super) fn nearest(device: &str, key: &TuneKey) -> Option<usize> {
    let known = known();
    let alike = known.get(device)?.iter().filter_map(|(other, &place)| {
        let distance = key.distance(other)?;
        // Of two that are as near the smaller, so that the order of a map decides nothing.
        Some(((distance, other.rows, other.cols), place))
    });
    alike.min().map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
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
}
