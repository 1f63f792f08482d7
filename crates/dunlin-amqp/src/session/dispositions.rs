//! Dispositions that are gathered to ranges before they are written.

use alloc::vec::Vec;

use dunlin_amqp_codec::{Disposition, Performative, Role, SerialNumber};

use crate::limits::DISPOSITION_RUNS_MAX;
use crate::output::Output;
use crate::state::State;

/// Deliveries with ids one after the other, and the same to say of them.
#[derive(Debug)]
struct Run {
    role: Role,
    first: SerialNumber,
    last: SerialNumber,
    settled: bool,
    state: Option<State>,
}

/// What is to be said of deliveries, in its order for each delivery.
#[derive(Debug, Default)]
pub(crate) struct Dispositions {
    runs: Vec<Run>,
}

impl Dispositions {
    /// Says something of a delivery; `role` is this side's. Whether the runs
    /// are to be written now.
    pub(crate) fn push(
        &mut self,
        role: Role,
        id: u32,
        settled: bool,
        state: Option<State>,
    ) -> bool {
        let id = SerialNumber(id);
        // Those of the other role name other deliveries: they do not break a run.
        let last = self.runs.iter_mut().rev().take(2);
        if let Some(run) = last.into_iter().find(|run| run.role == role)
            && run.last.next() == id
            && run.settled == settled
            && run.state == state
        {
            run.last = id;
            return false;
        }
        self.runs.push(Run {
            role,
            first: id,
            last: id,
            settled,
            state,
        });
        self.runs.len() >= DISPOSITION_RUNS_MAX
    }

    /// Writes all.
    pub(crate) fn flush(&mut self, channel: u16, out: &mut Output) {
        for run in self.runs.drain(..) {
            let state = run.state.as_ref();
            let mut disposition = Disposition {
                role: run.role,
                first: run.first,
                last: (run.last != run.first).then_some(run.last),
                settled: run.settled,
                state: state.map(State::get),
                ..Disposition::default()
            };
            let written = out.write(channel, &Performative::Disposition(disposition));
            if written.is_err() {
                // The peer's frames are too small for the reason of a rejection.
                disposition.state = state.map(State::without_details);
                let _ = out.write(channel, &Performative::Disposition(disposition));
            }
        }
        self.runs = Vec::new();
    }
}
