//! Load of the machine by other programs.

use std::{fs, thread, time::Duration};

/// Share of the processor above which other programs disturb a measurement.
const NOISE: f64 = 0.1;

/// The share of the processor that other programs use right now, if it is too large.
pub fn disturbance() -> Option<f64> {
    let sample = || Times::read(&fs::read_to_string("/proc/stat").ok()?);
    let before = sample()?;
    thread::sleep(Duration::from_millis(500));
    let share = sample()?.busy_since(before)?;
    (share > NOISE).then_some(share)
}

/// Ticks of all processors since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    idle: u64,
    all: u64,
}

impl Times {
    /// From the first line of `/proc/stat`: user, nice, system, idle, iowait and more.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|n| n.parse().ok())
            .collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self {
            idle,
            all: ticks.iter().sum(),
        })
    }

    fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.checked_sub(before.idle)?;
        Some(1.0 - idle as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_what_was_not_idle() {
        let before = Times::read("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(
            before,
            Times {
                idle: 850,
                all: 1000
            }
        );
        let after = Times::read("cpu  130 0 70 890 60 0 0 0 0 0\n").unwrap();
        assert!((after.busy_since(before).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(before.busy_since(before), None);
        assert_eq!(Times::read("intr 1 2 3"), None);
    }
}
