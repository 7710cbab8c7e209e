//! Launch parameters that a caller or autotuning sets.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::strategy::Strategy;

/// Launch parameters that override the analytic plan; it chooses every parameter that is `None`.
///
/// A knob is a preference. A value that the problem or the device does not allow becomes the
/// nearest allowed one, such as fewer units or no staging. Only a strategy that does not apply is
/// an error.
///
/// Its text lists the chosen values, such as `cube units=256 row=reload`; `analytic` if all are
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Knobs {
    /// The strategy.
    pub strategy: Option<Strategy>,
    /// Units of a plane, for devices that run plane operations but do not report them, as CubeCL's
    /// CPU Vulkan drivers.
    pub plane_size: Option<u32>,
    /// Most lanes of a vector.
    pub vector: Option<usize>,
    /// Units of a cube; the units along the reduced axis if a cube has several columns.
    pub units: Option<u32>,
    /// The staging of a row between its passes.
    pub row: Option<StagingPreference>,
    /// Rows that a unit processes together.
    pub rows_per_unit: Option<usize>,
    /// Parts that a row is split into.
    pub splits: Option<usize>,
    /// Cubes of a cluster that share rows, each with a part of the columns.
    pub cluster_size: Option<u32>,
    /// True to schedule rows dynamically over the cores of a CPU, false to assign them statically.
    pub dynamic: Option<bool>,
    /// Groups to plan for, in place of the problem's own. Plans for one number reduce each row in the
    /// same order, however many rows there are.
    #[serde(default)]
    pub planned_groups: Option<usize>,
}

/// The preferred staging of a row between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StagingPreference {
    /// None: the row is reloaded.
    Reload,
    /// Registers if they suffice, else none.
    Registers,
    /// Shared memory if it suffices, else none.
    Shared,
    /// Registers first, the rest in shared memory if it suffices, else none.
    Mixed,
}

/// Groups that a batch-invariant plan is for: more than the cores of a CPU, and enough for a GPU.
const GROUPS_OF_BATCHES: usize = 1024;

impl Knobs {
    /// Knobs of plans that reduce each row in the same order, however many rows there are.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{
    ///     DType, Hardware, Knobs, NormDesc, Statistics, Strategy, TensorDesc, plan_forward,
    /// };
    ///
    /// let strategy = |rows: usize, knobs: Knobs| {
    ///     let input = TensorDesc::contiguous([rows, 262_144], DType::F32);
    ///     let problem = NormDesc::new(input, [1], Statistics::MeanSquare).problem().unwrap();
    ///     plan_forward(&problem, &Hardware::cuda(132), knobs.into()).unwrap().strategy
    /// };
    /// assert_eq!(strategy(4, Knobs::default()), Strategy::Split);
    /// assert_eq!(strategy(4, Knobs::batch_invariant()), Strategy::Cube);
    /// assert_eq!(strategy(4096, Knobs::batch_invariant()), Strategy::Cube);
    /// ```
    pub fn batch_invariant() -> Self {
        Self {
            planned_groups: Some(GROUPS_OF_BATCHES),
            ..Self::default()
        }
    }
}

impl From<Strategy> for Knobs {
    fn from(strategy: Strategy) -> Self {
        Self {
            strategy: Some(strategy),
            ..Self::default()
        }
    }
}

impl fmt::Display for StagingPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => "reload",
            Self::Registers => "registers",
            Self::Shared => "shared",
            Self::Mixed => "mixed",
        })
    }
}

impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named =
            |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
        let said: Vec<String> = [
            self.strategy.map(|strategy| strategy.to_string()),
            named("plane", self.plane_size.map(|size| size.to_string())),
            named("vector", self.vector.map(|lanes| lanes.to_string())),
            named("units", self.units.map(|units| units.to_string())),
            named("row", self.row.map(|row| row.to_string())),
            named("rows", self.rows_per_unit.map(|rows| rows.to_string())),
            named("splits", self.splits.map(|parts| parts.to_string())),
            named("cluster", self.cluster_size.map(|cubes| cubes.to_string())),
            named("dynamic", self.dynamic.map(|dynamic| dynamic.to_string())),
            named("for", self.planned_groups.map(|groups| groups.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect();
        match said.is_empty() {
            true => f.write_str("analytic"),
            false => f.write_str(&said.join(" ")),
        }
    }
}

/// The source of the launch parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StrategyChoice {
    /// The analytic choice for this problem on this hardware.
    #[default]
    Inferred,
    /// The fastest measured plan for similar problems. Planning itself measures nothing:
    /// [`plan_forward`](crate::plan_forward) and [`plan_backward`](crate::plan_backward) treat it as
    /// [`Inferred`](Self::Inferred).
    Tuned,
    /// As [`Tuned`](Self::Tuned), with a budget for all measurements of the process. After that,
    /// problems without a cached result use [`Inferred`](Self::Inferred).
    TunedWithin(Duration),
    /// The knobs that the caller sets; the analytic choice decides the others.
    Forced(Knobs),
}

impl StrategyChoice {
    /// The knobs that the caller sets.
    pub fn knobs(self) -> Knobs {
        match self {
            Self::Inferred | Self::Tuned | Self::TunedWithin(_) => Knobs::default(),
            Self::Forced(knobs) => knobs,
        }
    }

    /// The time that measurements may take; `None` without autotuning.
    pub fn budget(self) -> Option<Duration> {
        match self {
            Self::Tuned => Some(Duration::MAX),
            Self::TunedWithin(budget) => Some(budget),
            Self::Inferred | Self::Forced(_) => None,
        }
    }
}

impl From<Strategy> for StrategyChoice {
    fn from(strategy: Strategy) -> Self {
        Self::Forced(strategy.into())
    }
}

impl From<Knobs> for StrategyChoice {
    fn from(knobs: Knobs) -> Self {
        Self::Forced(knobs)
    }
}
