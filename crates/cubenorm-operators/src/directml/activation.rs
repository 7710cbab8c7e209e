use cubenorm_core::Activation;
use serde::{Deserialize, Serialize};

/// Names and parameters of all activations, which are called the same in [`Activation`].
macro_rules! activations {
    ($(
        $(#[$doc:meta])*
        $name:literal, $short:literal => $variant:ident $({
            $($(#[$meaning:meta])* $field:ident: $spelling:literal,)+
        })?,
    )+) => {
        /// Activation that DirectML fuses into a normalization: `FusedActivation`.
        ///
        /// Serialized as `{ "Type": "DML_OPERATOR_ACTIVATION_LEAKY_RELU", "Alpha": 0.1 }`. The prefix
        /// `DML_OPERATOR_` is optional when reading. In the formulas, `x` is the normalized, scaled and
        /// shifted value.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "Type", rename_all_fields = "PascalCase")]
        pub enum FusedActivation {
            $(
                $(#[$doc])*
                #[serde(rename = $name, alias = $short)]
                $variant $({
                    $($(#[$meaning])* $field: f32,)+
                })?,
            )+
        }

        impl FusedActivation {
            /// Reads the activation called `name`, with or without `DML_OPERATOR_`. Calls
            /// `parameter` for each of its parameters. `None` if no activation is called so.
            ///
            /// # Errors
            ///
            /// Those of `parameter`.
            ///
            /// # Example
            ///
            /// ```
            /// use cubenorm_operators::directml::FusedActivation;
            ///
            /// let alpha = |field: &str| Ok::<_, String>(if field == "Alpha" { 0.5 } else { 0.0 });
            /// let elu = FusedActivation::read("ACTIVATION_ELU", alpha)?;
            /// assert_eq!(elu, Some(FusedActivation::Elu { alpha: 0.5 }));
            /// # Ok::<(), String>(())
            /// ```
            pub fn read<E>(
                name: &str,
                mut parameter: impl FnMut(&'static str) -> Result<f32, E>,
            ) -> Result<Option<Self>, E> {
                Ok(Some(match name {
                    $($name | $short => Self::$variant $({ $($field: parameter($spelling)?,)+ })?,)+
                    _ => return Ok(None),
                }))
            }
        }

        impl From<FusedActivation> for Activation {
            fn from(fused: FusedActivation) -> Self {
                match fused {
                    $(FusedActivation::$variant $({ $($field,)+ })? => {
                        Self::$variant $({ $($field: $field.into(),)+ })?
                    })+
                }
            }
        }
    };
}

activations! {
    /// `x` if `x > 0`, else `Alpha * (exp(x) - 1)`
    "DML_OPERATOR_ACTIVATION_ELU", "ACTIVATION_ELU" => Elu {
        /// Negated limit of the negative side.
        alpha: "Alpha",
    },
    /// `max(0, min(Alpha * x + Beta, 1))`
    "DML_OPERATOR_ACTIVATION_HARD_SIGMOID", "ACTIVATION_HARD_SIGMOID" => HardSigmoid {
        /// The slope.
        alpha: "Alpha",
        /// The offset.
        beta: "Beta",
    },
    /// `x`
    "DML_OPERATOR_ACTIVATION_IDENTITY", "ACTIVATION_IDENTITY" => Identity,
    /// `x` if `x > 0`, else `Alpha * x`
    "DML_OPERATOR_ACTIVATION_LEAKY_RELU", "ACTIVATION_LEAKY_RELU" => LeakyRelu {
        /// Slope of the negative side.
        alpha: "Alpha",
    },
    /// `Alpha * x + Beta`
    "DML_OPERATOR_ACTIVATION_LINEAR", "ACTIVATION_LINEAR" => Linear {
        /// The slope.
        alpha: "Alpha",
        /// The offset.
        beta: "Beta",
    },
    /// `Alpha * ln(1 + exp(Beta * x))`
    "DML_OPERATOR_ACTIVATION_PARAMETRIC_SOFTPLUS", "ACTIVATION_PARAMETRIC_SOFTPLUS" => ParametricSoftplus {
        /// Scale of the output.
        alpha: "Alpha",
        /// Scale of the input.
        beta: "Beta",
    },
    /// `max(0, x)`
    "DML_OPERATOR_ACTIVATION_RELU", "ACTIVATION_RELU" => Relu,
    /// `Gamma * x` if `x > 0`, else `Gamma * Alpha * (exp(x) - 1)`
    "DML_OPERATOR_ACTIVATION_SCALED_ELU", "ACTIVATION_SCALED_ELU" => ScaledElu {
        /// Scale of the exponential.
        alpha: "Alpha",
        /// Scale of both sides.
        gamma: "Gamma",
    },
    /// `Alpha * tanh(Beta * x)`
    "DML_OPERATOR_ACTIVATION_SCALED_TANH", "ACTIVATION_SCALED_TANH" => ScaledTanh {
        /// Scale of the output.
        alpha: "Alpha",
        /// Scale of the input.
        beta: "Beta",
    },
    /// `1 / (1 + exp(-x))`
    "DML_OPERATOR_ACTIVATION_SIGMOID", "ACTIVATION_SIGMOID" => Sigmoid,
    /// `ln(1 + exp(Steepness * x)) / Steepness`
    "DML_OPERATOR_ACTIVATION_SOFTPLUS", "ACTIVATION_SOFTPLUS" => Softplus {
        /// Sharpness of the bend at 0.
        steepness: "Steepness",
    },
    /// `x / (1 + |x|)`
    "DML_OPERATOR_ACTIVATION_SOFTSIGN", "ACTIVATION_SOFTSIGN" => Softsign,
    /// `tanh(x)`
    "DML_OPERATOR_ACTIVATION_TANH", "ACTIVATION_TANH" => Tanh,
    /// `x` if `x > Alpha`, else `0`
    "DML_OPERATOR_ACTIVATION_THRESHOLDED_RELU", "ACTIVATION_THRESHOLDED_RELU" => ThresholdedRelu {
        /// The threshold.
        alpha: "Alpha",
    },
    /// `x - Bias` if `x > Threshold`, `x + Bias` if `x < -Threshold`, else `0`
    "DML_OPERATOR_ACTIVATION_SHRINK", "ACTIVATION_SHRINK" => Shrink {
        /// Value subtracted from the magnitude.
        bias: "Bias",
        /// Magnitudes up to this become 0.
        threshold: "Threshold",
    },
    /// `max(0, x) + min(0, Alpha * (exp(x / Alpha) - 1))`
    "DML_OPERATOR_ACTIVATION_CELU", "ACTIVATION_CELU" => Celu {
        /// Scale of the negative side.
        alpha: "Alpha",
    },
}
