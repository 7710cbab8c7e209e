#![allow(missing_docs)]
#![cfg(feature = "flex")]
use cubenorm_example_common::training::Norms;
use digits::{digits::Digits, fetch, learning::{learn, Settings}, norms::Layer};
#[test]
fn dbg() {
    let device = cubenorm_example_common::open(std::env::var("BURN_DEVICE").ok().as_deref().or(Some("flex"))).unwrap().device;
    let digits = Digits::read(&fetch::fetch(&fetch::default_folder()).unwrap()).unwrap();
    for layer in [Layer::Batch, Layer::Group, Layer::Instance, Layer::Layer] {
    let r = learn(&digits, Settings { layer, epochs: 2 }, &[Norms::Burn, Norms::Burn, Norms::Cubenorm], &device).unwrap();
    println!("{layer}");
    for i in [0,1,2,3,4,5,6,8,10,12,14,16,18,20,22,24,28,32] {
        let l = |k: usize| r[k].run.losses[i];
        println!("{i:3} {:.6} {:+.2e} {:+.2e}", l(0), l(1)-l(0), l(2)-l(0));
    }
    }
}
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::optim::*;
use digits::network::Network;
use digits::digits::Batch;
struct V<'a>(&'a GradientsParams, Vec<Vec<f32>>);
impl ModuleVisitor for V<'_> {
    fn visit_float<const D: usize>(&mut self, p: &Param<Tensor<D>>) {
        if let Some(g) = self.0.get::<D>(p.id) { self.1.push(g.into_data().try_to_vec::<f32>().unwrap()); } else { self.1.push(vec![]) }
    }
}
#[test]
fn grads() {
    let device = cubenorm_example_common::open(std::env::var("BURN_DEVICE").ok().as_deref().or(Some("flex"))).unwrap().device.autodiff();
    let digits = Digits::read(&fetch::fetch(&fetch::default_folder()).unwrap()).unwrap();
    device.seed(42);
    let net = Network::new(Layer::Batch, &device);
    net.forward(Batch::new(&digits.training[..1], &device).pixels);
    let mut model = net.with_norms(Norms::Burn);
    let mut optim = SgdConfig::new().with_momentum(Some(momentum::MomentumConfig::new())).init();
    for step in 0..8 {
        let b = Batch::new(&digits.training[step*64..(step+1)*64], &device);
        let g = |m: &Network| { let l = burn::nn::loss::CrossEntropyLossConfig::new().init(&device).forward(m.forward(b.pixels.clone()), b.digits.clone()); let lv = l.clone().into_scalar::<f32>(); (lv, GradientsParams::from_grads(l.backward(), m)) };
        let fused = model.with_norms(Norms::Cubenorm);
        let (la, ga) = g(&model.with_norms(Norms::Burn));
        let (lb, gb) = g(&fused);
        let mut a = V(&ga, vec![]); model.visit(&mut a);
        let mut c = V(&gb, vec![]); fused.visit(&mut c);
        println!("step {step} loss {la} {lb}");
        for (x, y) in a.1.iter().zip(&c.1) {
            let m = x.iter().fold(0f32, |s, v| s.max(v.abs()));
            let d = x.iter().zip(y).fold(0f32, |s, (a, b)| s.max((a-b).abs()));
            println!("   {:6} max {m:.3e} diff {d:.1e}", x.len());
        }
        model = optim.step(0.1, model, ga);
    }
}
