//! The three numbers of a set of samples, by one clock.

use serde::Deserialize;

/// The clock of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Clock {
    /// The host's: from the first launch until the device is idle.
    Wall,
    /// The device's own, if its runtime reads one: the kernels' time, without the gaps between
    /// them.
    Device,
    /// The host's, of a recorded graph of the same calls.
    Replay,
}

impl Clock {
    pub(crate) const ALL: [Self; 3] = [Self::Wall, Self::Device, Self::Replay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Device => "device",
            Self::Replay => "replay",
        }
    }
}

/// Milliseconds per run: the middle, and the band that holds the middle 60 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stats {
    pub median: f64,
    pub p20: f64,
    pub p80: f64,
}

impl Stats {
    /// `None` if there is no sample.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            p20: percentile(&sorted, 0.2)?,
            p80: percentile(&sorted, 0.8)?,
        })
    }
}

/// The quantile at `fraction` of the sorted samples, by linear interpolation.
fn percentile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let position = fraction * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (
        sorted[position.floor() as usize],
        sorted[position.ceil() as usize],
    );
    Some(below + (above - below) * position.fract())
}

/// `None` if there is no ratio.
pub(crate) fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_samples_in_proportion() {
        let stats = Stats::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(stats.median, 3.0);
        assert!((stats.p20 - 1.8).abs() < 1e-12 && (stats.p80 - 4.2).abs() < 1e-12);
        assert_eq!(Stats::of(&[1.0, 2.0]).unwrap().median, 1.5);
    }

    #[test]
    fn one_sample_is_all_three_and_none_is_none() {
        assert_eq!(
            Stats::of(&[7.0]),
            Some(Stats {
                median: 7.0,
                p20: 7.0,
                p80: 7.0
            })
        );
        assert_eq!(Stats::of(&[]), None);
    }
}
