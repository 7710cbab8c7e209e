use burn::config::Config;
use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::activation::silu;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use crate::functional::or_panic;

/// Configuration to create an [`AdaLayerNormZero`] with [`init`](AdaLayerNormZeroConfig::init).
#[derive(Debug, Config)]
pub struct AdaLayerNormZeroConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// The size of the condition.
    pub d_condition: usize,
    /// A value required for numerical stability. Default: 1e-6
    #[config(default = 1e-6)]
    pub epsilon: f64,
}

/// Modulation of a block of a diffusion transformer: the norms in front of its attention and of its MLP, and the gates
/// behind both. All are linear functions of a condition.
///
/// ```text
/// shift, scale, gate, shift', scale', gate' = linear(silu(condition))
/// h   = norm(x) * (1 + scale) + shift             forward
/// sum = x + gate * attention(h)
/// h   = norm(sum) * (1 + scale') + shift'         BlockModulation::add
/// y   = sum + gate' * mlp(h)                      BlockModulation::end
/// ```
///
/// The linear layer is zero at first, so that a block begins as the identity.
///
/// Source: adaLN-Zero of [Scalable Diffusion Models with Transformers](https://arxiv.org/abs/2212.09748), with the order
/// of parts that its code, Stable Diffusion 3 and Flux have.
///
/// Create it with [`AdaLayerNormZeroConfig`].
#[derive(Module, Debug)]
pub struct AdaLayerNormZero {
    /// Linear layer from the condition to the six parts.
    pub modulation: Linear,
    /// A value required for numerical stability.
    pub epsilon: f64,
}

/// The parts of an [`AdaLayerNormZero`] behind the first norm, each `[batch, 1, ..., d_model]`.
#[derive(Debug, Clone)]
pub struct BlockModulation<const D: usize> {
    /// Factor of the attention's result.
    pub gate: Tensor<D>,
    /// Shift of the norm in front of the MLP.
    pub mlp_shift: Tensor<D>,
    /// Scale of that norm, without its 1.
    pub mlp_scale: Tensor<D>,
    /// Factor of the MLP's result.
    pub mlp_gate: Tensor<D>,
    epsilon: f64,
}

impl AdaLayerNormZeroConfig {
    /// Initializes an [`AdaLayerNormZero`] whose parts are 0 for every condition.
    pub fn init(&self, device: &Device) -> AdaLayerNormZero {
        AdaLayerNormZero {
            modulation: LinearConfig::new(self.d_condition, 6 * self.d_model)
                .with_initializer(Initializer::Zeros)
                .init(device),
            epsilon: self.epsilon,
        }
    }
}

impl AdaLayerNormZero {
    /// Normalizes and modulates the input of the attention. The rest of the block is returned beside it.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, ..., d_model]`
    /// - condition: `[batch, d_condition]`
    ///
    /// # Panics
    ///
    /// If [`try_forward`](Self::try_forward) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::AdaLayerNormZeroConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = AdaLayerNormZeroConfig::new(2, 3).with_epsilon(0.0).init(&device);
    /// let x = Tensor::<3>::from_floats([[[1.0, 3.0]]], &device);
    /// let condition = Tensor::<2>::from_floats([[1.0, 2.0, 3.0]], &device);
    /// let (attention, mlp) = (|h: Tensor<3>| h.exp(), |h: Tensor<3>| h.tanh());
    ///
    /// let (h, rest) = norm.forward(x.clone(), condition);
    /// let (h, sum) = rest.add(attention(h), x);
    /// let y = rest.end(mlp(h), sum);
    /// // The gates are 0 at first.
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        condition: Tensor<2>,
    ) -> (Tensor<D>, BlockModulation<D>) {
        or_panic(self.try_forward(input, condition))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::Shape`] if `modulation` does not take the condition or does not have `6 * d_model` output features,
    /// else as [`try_modulated_layer_norm`](crate::try_modulated_layer_norm).
    pub fn try_forward<const D: usize>(
        &self,
        input: Tensor<D>,
        condition: Tensor<2>,
    ) -> Result<(Tensor<D>, BlockModulation<D>), NormError> {
        crate::functional::expect_rank(&input, 2, "[batch, ..., d_model]")?;
        let shape = input.dims();
        let (batch, features) = (shape[0], shape[D - 1]);
        let [taken, outputs] = self.modulation.weight.dims();
        if condition.dims() != [batch, taken] {
            return Err(NormError::Shape {
                tensor: "condition",
                shape: condition.dims().to_vec(),
                expected: format!("[{batch}, {taken}]"),
            });
        }
        if outputs != 6 * features {
            return Err(NormError::Shape {
                tensor: "modulation",
                shape: vec![taken, outputs],
                expected: format!("[d_condition, {}], six parts of d_model", 6 * features),
            });
        }
        let mut of_sample = [1; D];
        (of_sample[0], of_sample[D - 1]) = (batch, features);
        let modulation = self.modulation.forward(silu(condition));
        let part = |which: usize| {
            let columns = which * features..(which + 1) * features;
            modulation
                .clone()
                .slice([0..batch, columns])
                .reshape(of_sample)
        };
        let h = crate::try_modulated_layer_norm(input, part(1), part(0), self.epsilon)?;
        let rest = BlockModulation {
            gate: part(2),
            mlp_shift: part(3),
            mlp_scale: part(4),
            mlp_gate: part(5),
            epsilon: self.epsilon,
        };
        Ok((h, rest))
    }
}

impl<const D: usize> BlockModulation<D> {
    /// Adds the attention's result to the block's input, and normalizes and modulates the sum. Returns `(h, sum)`: see
    /// [`add_modulated_layer_norm`](crate::add_modulated_layer_norm).
    ///
    /// # Panics
    ///
    /// If [`try_add`](Self::try_add) returns an error, with that message.
    #[track_caller]
    pub fn add(&self, branch: Tensor<D>, input: Tensor<D>) -> (Tensor<D>, Tensor<D>) {
        or_panic(self.try_add(branch, input))
    }

    /// [`add`](Self::add) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_add_modulated_layer_norm`](crate::try_add_modulated_layer_norm).
    pub fn try_add(
        &self,
        branch: Tensor<D>,
        input: Tensor<D>,
    ) -> Result<(Tensor<D>, Tensor<D>), NormError> {
        crate::try_add_modulated_layer_norm(
            branch,
            input,
            self.gate.clone(),
            self.mlp_scale.clone(),
            self.mlp_shift.clone(),
            self.epsilon,
        )
    }

    /// Adds the MLP's result to the sum.
    ///
    /// # Panics
    ///
    /// If the shapes do not broadcast, as Burn's operations do.
    pub fn end(&self, branch: Tensor<D>, sum: Tensor<D>) -> Tensor<D> {
        sum + self.mlp_gate.clone() * branch
    }
}
