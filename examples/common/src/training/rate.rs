/// Steps of the linear warm-up.
const WARM_UP: f64 = 20.0;

/// Learning rate of a step of `total`: linear warm-up over 20 steps, and linear decay to zero.
pub fn rate(largest: f64, step: usize, total: usize) -> f64 {
    let warm = (step + 1) as f64 / WARM_UP;
    let left = 1.0 - step as f64 / total as f64;
    largest * warm.min(1.0) * left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_warms_up_and_decays_to_zero() {
        let rates: Vec<_> = (0..=200).map(|step| rate(3e-3, step, 200)).collect();
        assert!(rates[..20].is_sorted());
        assert!(rates[20..].is_sorted_by(|a, b| a >= b));
        assert!(rates.iter().all(|rate| *rate <= 3e-3));
        assert_eq!(rates[200], 0.0);
    }
}
