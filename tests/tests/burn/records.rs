//! Records of either library load into the other.

use burn::module::Module;
use burn::nn;
use burn::store::ModuleRecord;
use cubenorm::nn::{InstanceNormConfig, LayerNormConfig, RmsNormConfig};

use crate::{devices, difference, noise};

/// Through bytes, as from a file.
fn saved(module: impl Module) -> ModuleRecord {
    let bytes = module.into_record().into_bytes().unwrap();
    ModuleRecord::from_bytes(bytes).unwrap()
}

macro_rules! both_ways {
    ($name:ident, $ours:expr, $burns:expr, $shape:expr, [$($param:ident),*]) => {
        #[test]
        fn $name() {
            for (device_name, device) in devices() {
                let x = noise($shape, 1, &device);
                let mut burns = $burns.init(&device);
                let mut seed = 2;
                $(
                    seed += 1;
                    burns.$param = randomized(burns.$param, seed, &device);
                )*
                let expected = burns.forward(x.clone());
                let ours = $ours.init(&device).load_record(saved(burns));
                let actual = ours.forward(x.clone());
                assert!(difference(actual.clone(), expected) < 1e-5, "{device_name}: from Burn");
                let back = $burns.init(&device).load_record(saved(ours));
                assert!(difference(back.forward(x), actual) < 1e-5, "{device_name}: to Burn");
            }
        }
    };
}

/// Sets random values, so that a test notices a record that was not loaded.
trait Randomized: Sized {
    fn randomized(self, seed: u64, device: &burn::tensor::Device) -> Self;
}

fn randomized<P: Randomized>(param: P, seed: u64, device: &burn::tensor::Device) -> P {
    param.randomized(seed, device)
}

impl Randomized for burn::module::Param<burn::tensor::Tensor<1>> {
    fn randomized(self, seed: u64, device: &burn::tensor::Device) -> Self {
        let size = self.dims();
        self.map(|_| noise(size, seed, device))
    }
}

impl<P: Randomized> Randomized for Option<P> {
    fn randomized(self, seed: u64, device: &burn::tensor::Device) -> Self {
        self.map(|param| param.randomized(seed, device))
    }
}

both_ways!(
    layer_norm_records_load_both_ways,
    LayerNormConfig::new(24),
    nn::LayerNormConfig::new(24),
    [3, 24],
    [gamma, beta]
);
both_ways!(
    rms_norm_records_load_both_ways,
    RmsNormConfig::new(24),
    nn::RmsNormConfig::new(24),
    [3, 24],
    [gamma]
);
both_ways!(
    instance_norm_records_load_both_ways,
    InstanceNormConfig::new(6),
    nn::InstanceNormConfig::new(6),
    [2, 6, 5],
    [gamma, beta]
);
