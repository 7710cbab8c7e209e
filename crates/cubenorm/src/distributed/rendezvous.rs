//! The meeting of threads: each brings a part, and gets the parts of all.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::DType;

use super::CollectiveError;

/// A meeting point of several threads.
#[derive(Debug)]
pub(super) struct Rendezvous<T> {
    limit: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Number of the current exchange.
    exchange: u64,
    /// Parts of the members that have come to it.
    parts: Vec<Option<T>>,
    /// Parts of the exchange before. A member brings its next part only after it has taken these.
    last: Arc<Vec<T>>,
    /// Members that have left; true if by a panic.
    left: Vec<Option<bool>>,
    /// The error that ended the group.
    ended: Option<CollectiveError>,
}

/// Length and dtype of a part.
pub(super) type Form = (usize, DType);

impl<T> Rendezvous<T> {
    pub(super) fn new(members: usize, limit: Duration) -> Self {
        Self {
            limit,
            state: Mutex::new(State {
                exchange: 0,
                parts: (0..members).map(|_| None).collect(),
                last: Arc::new(Vec::new()),
                left: vec![None; members],
                ended: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for the parts of all members, in the order of their ranks. All of one form.
    pub(super) fn meet(
        &self,
        rank: usize,
        part: T,
        form: impl Fn(&T) -> Form,
    ) -> Result<Arc<Vec<T>>, CollectiveError> {
        let parts = self.exchange(rank, part)?;
        let forms = || parts.iter().map(&form).enumerate();
        let Some((_, (length, dtype))) = forms().next() else {
            return Ok(parts);
        };
        match forms().find(|(_, other)| *other != (length, dtype)) {
            None => Ok(parts),
            // Every member finds the same one.
            Some((other, (other_length, other_dtype))) => Err(CollectiveError::Mismatch {
                other,
                other_length,
                other_dtype: other_dtype.name().to_owned(),
                length,
                dtype: dtype.name().to_owned(),
            }),
        }
    }

    fn exchange(&self, rank: usize, part: T) -> Result<Arc<Vec<T>>, CollectiveError> {
        let begin = Instant::now();
        let mut state = self.lock();
        let exchange = state.exchange;
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        if state.parts[rank].is_some() {
            return Err(CollectiveError::Concurrent { rank, exchange });
        }
        state.parts[rank] = Some(part);
        if state.parts.iter().all(Option::is_some) {
            let parts = state.parts.iter_mut().filter_map(Option::take).collect();
            state.last = Arc::new(parts);
            state.exchange += 1;
            self.changed.notify_all();
            return Ok(state.last.clone());
        }
        loop {
            if state.exchange != exchange {
                return Ok(state.last.clone());
            }
            if let Some(error) = &state.ended {
                return Err(error.clone());
            }
            let missing: Vec<usize> = (0..state.parts.len())
                .filter(|&member| state.parts[member].is_none())
                .collect();
            let gone = missing
                .iter()
                .find_map(|&member| Some((member, state.left[member]?)));
            if let Some((member, panicked)) = gone {
                return Err(self.end(
                    &mut state,
                    CollectiveError::Left {
                        member,
                        panicked,
                        exchange,
                    },
                ));
            }
            let Some(rest) = self.limit.checked_sub(begin.elapsed()) else {
                let members = state.parts.len();
                let limit = self.limit;
                return Err(self.end(
                    &mut state,
                    CollectiveError::TimedOut {
                        rank,
                        missing,
                        members,
                        limit,
                        exchange,
                    },
                ));
            };
            let waited = self.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the group with an error, which all members get.
    fn end(&self, state: &mut State<T>, error: CollectiveError) -> CollectiveError {
        state.ended = Some(error.clone());
        self.changed.notify_all();
        error
    }

    /// Notes that a member will not come again.
    pub(super) fn leave(&self, rank: usize, panicked: bool) {
        self.lock().left[rank] = Some(panicked);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of ours panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
