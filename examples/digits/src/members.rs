//! Training of one network by several members: threads that share each batch, its statistics and its gradients.
//!
//! Each member has a copy of the network and a part of every batch. Batch norms exchange statistics while a step runs.
//! After its backward pass, the gradients of all members are summed, in one exchange. That order is safe:
//! see [`cubenorm::distributed`].

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, SgdConfig, momentum::MomentumConfig};
use burn::tensor::{Device, Tensor};
use cubenorm::distributed::{Collective, InProcess};
use cubenorm_example_common::training::{Run, Schedule, cross_entropy};
use cubenorm_example_common::{Norms, read};

use crate::digits::{Batch, Picture};
use crate::network::Network;

/// Longest wait for another member. The first step compiles kernels.
const LIMIT: Duration = Duration::from_secs(600);

/// A network after training, and what was measured.
pub struct Trained {
    /// The network of the first member. All are equal.
    pub network: Network,
    /// Losses and times.
    pub run: Run,
    /// Running statistics of all batch norms after the first epoch, if any.
    pub statistics: Vec<f32>,
}

/// Trains copies of a network on the batches of each epoch, each divided over the members.
///
/// # Errors
///
/// If a member fails: the others then end too.
pub fn train(
    untrained: &Network,
    members: usize,
    schedule: Schedule,
    batches: impl Fn(usize) -> Vec<Vec<Picture>> + Sync,
    device: &Device,
) -> Result<Trained> {
    let group = InProcess::group(members, LIMIT).into_iter();
    let members: Vec<Member> = group
        .map(|collective| Member::new(untrained, Arc::new(collective), device))
        .collect();
    let batches = &batches;
    let trained: Vec<Result<Trained>> = thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|member| scope.spawn(move || member.train(schedule, batches)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Trained>>| {
            let result = thread.join();
            result.unwrap_or_else(|_| Err(anyhow!("a member panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let trained: Result<Vec<Trained>> = trained.into_iter().collect();
    trained?
        .into_iter()
        .next()
        .ok_or_else(|| anyhow!("a group has a member"))
}

/// A thread's copy of the network.
struct Member {
    network: Network,
    collective: Arc<dyn Collective>,
    device: Device,
}

impl Member {
    fn new(untrained: &Network, collective: Arc<dyn Collective>, device: &Device) -> Self {
        Self {
            network: untrained.for_member(&collective),
            collective,
            device: device.clone(),
        }
    }

    /// This member's part of a batch.
    fn part(&self, batch: usize) -> Range<usize> {
        let (rank, members) = (self.collective.rank(), self.collective.members());
        batch * rank / members..batch * (rank + 1) / members
    }

    fn train(
        mut self,
        schedule: Schedule,
        batches: impl Fn(usize) -> Vec<Vec<Picture>>,
    ) -> Result<Trained> {
        let optimizer = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
        let mut optimizer = optimizer.init();
        let mut run = Run {
            norms: Norms::Cubenorm,
            losses: Vec::new(),
            epochs: Vec::new(),
            memory: None,
        };
        let mut statistics = Vec::new();
        for epoch in 0..schedule.epochs {
            let start = Instant::now();
            // Read together, since each read waits for the device.
            let mut losses = Vec::with_capacity(schedule.steps);
            for (step, pictures) in batches(epoch).iter().enumerate() {
                let own = self.part(pictures.len());
                // Members with more pictures weigh more: the sum of all is the mean over the batch.
                let weight = own.len() as f64 / pictures.len() as f64;
                let batch = Batch::new(&pictures[own], &self.device);
                let logits = self.network.forward(batch.pixels);
                let loss = cross_entropy(logits, batch.digits) * weight;
                let gradients = GradientsParams::from_grads(loss.backward(), &self.network);
                let (gradients, loss) = self.sum(gradients, loss.inner())?;
                let rate = schedule.learning_rate(epoch * schedule.steps + step);
                self.network = optimizer.step(rate, self.network, gradients);
                losses.push(loss);
            }
            run.losses.extend(read(Tensor::cat(losses, 0))?);
            run.epochs.push(start.elapsed());
            if epoch == 0 {
                statistics = self.network.statistics().map_or(Ok(Vec::new()), read)?;
            }
        }
        Ok(Trained {
            network: self.network,
            run,
            statistics,
        })
    }

    /// Sums the gradients and the losses of all members, in one exchange.
    fn sum(
        &self,
        gradients: GradientsParams,
        loss: Tensor<1>,
    ) -> Result<(GradientsParams, Tensor<1>)> {
        let mut flat = Flat {
            gradients: &gradients,
            tensors: vec![loss],
        };
        self.network.visit(&mut flat);
        let sums = self.collective.all_reduce(Tensor::cat(flat.tensors, 0))?;
        let loss = sums.clone().slice(0..1);
        let mut summed = Summed {
            before: &gradients,
            sums,
            begin: 1,
            after: GradientsParams::new(),
        };
        self.network.visit(&mut summed);
        Ok((summed.after, loss))
    }
}

/// Gradients in the order of the network's parameters, one after another.
struct Flat<'a> {
    gradients: &'a GradientsParams,
    tensors: Vec<Tensor<1>>,
}

impl ModuleVisitor for Flat<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let elements = gradient.shape().num_elements();
            self.tensors.push(gradient.reshape([elements]));
        }
    }
}

/// Takes the sums apart in the same order.
struct Summed<'a> {
    before: &'a GradientsParams,
    sums: Tensor<1>,
    begin: usize,
    after: GradientsParams,
}

impl ModuleVisitor for Summed<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.before.get::<D>(param.id) {
            let shape = gradient.dims();
            let end = self.begin + shape.iter().product::<usize>();
            let sum = self.sums.clone().slice(self.begin..end);
            self.after.register(param.id, sum.reshape(shape));
            self.begin = end;
        }
    }
}
