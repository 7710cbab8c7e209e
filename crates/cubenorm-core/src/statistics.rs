//! The statistics of a row, and the combination of its parts.

use crate::activation::Activation;
use crate::desc::Statistics;

/// The statistics to reduce, without the tensors of [`Statistics::Provided`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatisticsKind {
    /// See [`Statistics::MeanVariance`].
    MeanVariance,
    /// See [`Statistics::MeanSquare`].
    MeanSquare,
    /// See [`Statistics::Mean`].
    Mean,
    /// See [`Statistics::L1Norm`].
    L1Norm,
    /// See [`Statistics::L2Norm`].
    L2Norm,
    /// See [`Statistics::None`].
    None,
    /// See [`Statistics::Provided`].
    Provided,
    /// See [`Statistics::DynamicTanh`].
    DynamicTanh,
}

impl StatisticsKind {
    /// The kind of these statistics.
    pub const fn of(statistics: &Statistics) -> Self {
        match statistics {
            Statistics::MeanVariance => Self::MeanVariance,
            Statistics::MeanSquare => Self::MeanSquare,
            Statistics::Mean => Self::Mean,
            Statistics::L1Norm => Self::L1Norm,
            Statistics::L2Norm => Self::L2Norm,
            Statistics::None => Self::None,
            Statistics::Provided { .. } => Self::Provided,
            Statistics::DynamicTanh { .. } => Self::DynamicTanh,
        }
    }

    /// True if a mean is reduced.
    pub const fn reduces_mean(self) -> bool {
        matches!(self, Self::MeanVariance | Self::Mean)
    }

    /// True if a deviation is reduced, from squares, squared deviations or magnitudes.
    pub const fn reduces_deviation(self) -> bool {
        matches!(
            self,
            Self::MeanVariance | Self::MeanSquare | Self::L1Norm | Self::L2Norm
        )
    }

    /// True if a variance or a mean of squares is reduced.
    pub const fn reduces_variance(self) -> bool {
        matches!(self, Self::MeanVariance | Self::MeanSquare)
    }

    /// The combination of the statistics of two parts of a row.
    pub const fn merge(self) -> Merge {
        match self {
            Self::MeanVariance => Merge::Moments,
            Self::Mean => Merge::Means,
            Self::L1Norm => Merge::Scaled { squares: false },
            Self::L2Norm => Merge::Scaled { squares: true },
            Self::MeanSquare | Self::None | Self::Provided | Self::DynamicTanh => Merge::Sum,
        }
    }

    /// True for vector norms, whose sums may overflow although the result does not.
    pub const fn is_norm(self) -> bool {
        matches!(self, Self::L1Norm | Self::L2Norm)
    }

    /// The tensor that the place of the provided variance is for, in errors.
    pub(crate) const fn name_of_variance(self) -> &'static str {
        match self {
            Self::DynamicTanh => "alpha",
            _ => "variance",
        }
    }

    /// The function that the normalized value is the result of. A device has to compute it.
    pub const fn function(self) -> Activation {
        match self {
            Self::DynamicTanh => Activation::Tanh,
            _ => Activation::Identity,
        }
    }

    /// True if anything is reduced.
    pub const fn reduces(self) -> bool {
        self.reduces_mean() || self.reduces_deviation()
    }
}

/// The combination of the partial statistics of two parts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Means and sums of squared deviations (Chan, Golub, LeVeque).
    Moments,
    /// Means weighted by the element counts of their parts.
    Means,
    /// One sum.
    Sum,
    /// Two sums.
    Sums,
    /// One sum of squares or magnitudes, relative to a scale of each part.
    Scaled {
        /// True for squares, false for magnitudes.
        squares: bool,
    },
}

impl Merge {
    /// True if parts are weighted by their element counts.
    pub const fn weighs(self) -> bool {
        matches!(self, Self::Moments | Self::Means)
    }

    /// True if there is a mean, or a sum in its place.
    pub const fn takes_means(self) -> bool {
        !matches!(self, Self::Sum | Self::Scaled { .. })
    }

    /// True if a part has two values: its sum, and a mean, a second sum or a scale.
    pub const fn has_two(self) -> bool {
        !matches!(self, Self::Sum)
    }
}
