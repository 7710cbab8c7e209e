//! Load of the machine by other programs.

use std::{fs, thread, time::Duration};

/// Share of the processor above which other programs disturb a measurement.
const NOISE: f64 = 0.1;

/// The share of the processor that other programs use right now, if it is too large.
pub(super) fn disturbance() -> Option<f64> {
    let sample = || ticks(&fs::read_to_string("/proc/stat").ok()?);
    let before = sample()?;
    thread::sleep(Duration::from_millis(500));
    busy(before, sample()?).filter(|share| *share > NOISE)
}

/// Idle ticks of all processors, and all, since the machine started. From the first line of
/// `/proc/stat`: user, nice, system, idle, iowait and more.
fn ticks(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = line.split_whitespace().map_while(|n| n.parse().ok());
    let ticks: Vec<u64> = ticks.collect();
    Some([ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()])
}

fn busy(before: [u64; 2], after: [u64; 2]) -> Option<f64> {
    let all = after[1].checked_sub(before[1]).filter(|all| *all > 0)?;
    let idle = after[0].checked_sub(before[0])?;
    Some(1.0 - idle as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_what_was_not_idle() {
        let before = ticks("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, [850, 1000]);
        let after = ticks("cpu  130 0 70 890 60 0 0 0 0 0\n").unwrap();
        assert!((busy(before, after).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(busy(before, before), None);
        assert_eq!(ticks("intr 1 2 3"), None);
    }
}
