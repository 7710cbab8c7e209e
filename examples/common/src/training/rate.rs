/// Steps in which the learning rate grows.
const WARM_UP: f64 = 20.0;

/// The learning rate of a step of `total`: it grows to `largest` over the first 20 steps, and falls to
/// zero from there.
pub fn rate(largest: f64, step: usize, total: usize) -> f64 {
    let warm = (step + 1) as f64 / WARM_UP;
    let left = 1.0 - step as f64 / total as f64;
    largest * warm.min(1.0) * left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_grows_and_then_falls_to_zero() {
        let rates: Vec<_> = (0..=200).map(|step| rate(3e-3, step, 200)).collect();
        assert!(rates[..20].is_sorted());
        assert!(rates[20..].is_sorted_by(|a, b| a >= b));
        assert!(rates.iter().all(|rate| *rate <= 3e-3));
        assert_eq!(rates[200], 0.0);
    }
}
