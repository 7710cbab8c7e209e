//! Parts that the plots share.

use plotters::style::RGBColor;

/// A picture, and what its colours mean.
pub struct Plot {
    pub svg: String,
    pub legend: Vec<(String, RGBColor)>,
}

/// Colours that people who see colours differently tell apart (after Okabe and Ito).
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub const SKY: RGBColor = RGBColor(86, 180, 233);
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
/// Axes, and what is no provider.
pub const GREY: RGBColor = RGBColor(110, 118, 129);
pub const PALE: RGBColor = RGBColor(225, 228, 232);

/// The letters of all plots.
pub const FONT: (&str, u32) = ("sans-serif", 13);

/// The colour of a strategy, the same in every plot.
pub fn strategy(name: &str) -> RGBColor {
    match name {
        "unit" => BLUE,
        "plane" => ORANGE,
        "cube" => GREEN,
        "split" => VERMILION,
        "perpendicular" => SKY,
        _ => PURPLE,
    }
}

/// A power of two in few letters: `512`, `4Ki`, `16Mi`.
pub fn size(size: usize) -> String {
    match size {
        0..1024 => size.to_string(),
        1024..1_048_576 => format!("{}Ki", size >> 10),
        _ => format!("{}Mi", size >> 20),
    }
}

/// An error of plotters', whose type knows the canvas.
pub fn undrawn(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("a plot could not be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [1, 512, 4096, 1 << 24].map(size),
            ["1", "512", "4Ki", "16Mi"]
        );
    }
}
