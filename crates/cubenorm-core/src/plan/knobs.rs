use std::fmt;

use serde::{Deserialize, Serialize};

use super::Strategy;

/// How a launch is cut, as far as somebody decides it: what is `None` is left to the analytic plan.
///
/// A knob is a wish. What the problem or the device cannot have (more units than fit, a row that no
/// register holds) becomes the nearest that they can; only a strategy that does not apply is an error.
///
/// It prints as what it decides, such as `cube units=256 row=reread`, and as `analytic` where it
/// decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Knobs {
    /// Who works together on a row.
    pub strategy: Option<Strategy>,
    /// Units of a plane, where the hardware reports no plane operations although it runs them, as
    /// CubeCL does for software Vulkan drivers.
    pub plane_size: Option<u32>,
    /// Lanes of a vector at most.
    pub vector: Option<usize>,
    /// Units of a cube; along the reduced axis where it has several columns.
    pub units: Option<u32>,
    /// Where a row stays between its passes.
    pub row: Option<RowHeld>,
    /// Rows that a unit takes side by side.
    pub abreast: Option<usize>,
    /// Parts of a row.
    pub splits: Option<usize>,
    /// Cubes that share rows, each with a part of the columns of all of them.
    pub peers: Option<u32>,
    /// Whether the cores of a CPU claim their rows while a launch runs.
    pub claims: Option<bool>,
}

/// Where a row should stay between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowHeld {
    /// Nowhere: it is read again.
    Reread,
    /// In registers, where they suffice, else nowhere.
    Registers,
    /// In shared memory, where it suffices, else nowhere.
    Shared,
    /// In registers as far as they suffice, the rest in shared memory, where that does, else nowhere.
    Both,
}

impl From<Strategy> for Knobs {
    fn from(strategy: Strategy) -> Self {
        Self {
            strategy: Some(strategy),
            ..Self::default()
        }
    }
}

impl fmt::Display for RowHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reread => "reread",
            Self::Registers => "registers",
            Self::Shared => "shared",
            Self::Both => "both",
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
            named("abreast", self.abreast.map(|rows| rows.to_string())),
            named("splits", self.splits.map(|parts| parts.to_string())),
            named("peers", self.peers.map(|cubes| cubes.to_string())),
            named("claims", self.claims.map(|claims| claims.to_string())),
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
