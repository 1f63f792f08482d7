//! Datagrams on their way to a socket, in order. Those of one turn leave with few
//! system calls, to any destinations; one that cannot be sent neither
//! holds up nor drops another. It knows no socket: a [`Kernel`] takes datagrams.

use dunlin_quic::datagram::Transmit;

/// Transmissions that wait, and that leave with one call. More would keep the
/// first of them waiting for longer than it saves calls.
pub(crate) const TRANSMITS_MAX: usize = 32;
/// Bytes that wait, from which on they leave before more is added.
const BYTES_MAX: usize = 64 << 10;
/// Transmissions of more bytes, which are several datagrams, leave by themselves:
/// to copy them costs more than a call.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Datagrams to send, and their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) transmit: &'a Transmit,
    pub(crate) contents: &'a [u8],
}

/// What became of several transmissions that were given to the kernel with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// It took so many, from the first; at least one.
    Taken(usize),
    /// It took none: the first is to be sent by itself.
    SendFirst,
    /// It took none, and there is no such call, or no leave to make it.
    Off,
}

/// What takes datagrams.
pub(crate) trait Kernel {
    /// Sends one transmission; `false`: not now. What cannot be sent at all is
    /// lost, as in a network.
    fn send(&mut self, one: Outgoing<'_>) -> bool;

    /// Sends several with one call.
    fn send_many(&mut self, several: &[Outgoing<'_>]) -> Batch;

    /// There is no place for this one to wait.
    fn lose(&mut self, one: Outgoing<'_>);
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// What waits; `size` is how many of `bytes` belong to each.
    transmits: Vec<Transmit>,
    bytes: Vec<u8>,
    blocked: bool,
    /// The kernel sends several with one call, as far as is known.
    pub(crate) batches: bool,
}

impl Outbox {
    pub(crate) const fn new(batches: bool) -> Self {
        Self {
            transmits: Vec::new(),
            bytes: Vec::new(),
            blocked: false,
            batches,
        }
    }

    /// Whether the kernel took something not; [`Outbox::unblock`] ends it.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether something waits that the kernel was not given yet.
    pub(crate) fn is_ready(&self) -> bool {
        !self.blocked && !self.transmits.is_empty()
    }

    /// As if the kernel had taken something not.
    #[cfg(test)]
    pub(crate) const fn block(&mut self) {
        self.blocked = true;
    }

    /// The kernel takes datagrams again: sends what waits.
    pub(crate) fn unblock(&mut self, kernel: &mut impl Kernel) {
        self.blocked = false;
        self.flush(kernel);
    }

    /// Adds a transmission, which leaves with the next [`Outbox::flush`] or
    /// before.
    pub(crate) fn push(
        &mut self,
        mut transmit: Transmit,
        contents: &[u8],
        kernel: &mut impl Kernel,
    ) {
        let contents = contents.get(..transmit.size).unwrap_or(contents);
        transmit.size = contents.len();
        let is_full = |outbox: &Self| {
            outbox.transmits.len() >= TRANSMITS_MAX
                || outbox.bytes.len() + contents.len() > BYTES_MAX
        };
        let is_large = contents.len() > COPIED_BYTES_MAX;
        // What was made before the socket was seen to be full is kept: its
        // connection counts it as sent. That is one transmission at most.
        let was_blocked = self.blocked;
        if is_large || is_full(self) {
            self.flush(kernel);
        }
        let one = Outgoing {
            transmit: &transmit,
            contents,
        };
        if was_blocked && is_full(self) {
            return kernel.lose(one);
        }
        if is_large && !self.blocked {
            if kernel.send(one) {
                return;
            }
            self.blocked = true;
        }
        self.bytes.extend_from_slice(contents);
        self.transmits.push(transmit);
    }

    /// Sends what waits, unless the kernel takes nothing.
    pub(crate) fn flush(&mut self, kernel: &mut impl Kernel) {
        if !self.is_ready() {
            return;
        }
        let mut bytes = self.bytes.as_slice();
        let waiting = self.transmits.iter().map(|transmit| {
            let (contents, rest) = bytes
                .split_at_checked(transmit.size)
                .unwrap_or((bytes, &[]));
            bytes = rest;
            Outgoing { transmit, contents }
        });
        let waiting: Vec<Outgoing<'_>> = waiting.collect();
        let mut left = waiting.as_slice();
        while let Some((first, others)) = left.split_first() {
            let batch = match others {
                [_, ..] if self.batches => kernel.send_many(left),
                _ => Batch::SendFirst,
            };
            self.batches &= batch != Batch::Off;
            left = if let Batch::Taken(taken) = batch {
                left.get(taken..).unwrap_or_default()
            } else if kernel.send(*first) {
                others
            } else {
                self.blocked = true;
                break;
            };
        }
        let gone = waiting.len() - left.len();
        let gone_bytes =
            self.bytes.len() - left.iter().map(|one| one.contents.len()).sum::<usize>();
        self.transmits.drain(..gone);
        self.bytes.drain(..gone_bytes);
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;
    use std::collections::VecDeque;

    use super::*;

    /// What a scripted kernel does with the next transmission.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Taken,
        /// The buffer is full: until it is asked once more.
        Full,
        /// There is no way to this destination.
        Dead,
    }

    #[derive(Default)]
    struct Script {
        /// Fates of the transmissions to come, then all are taken.
        fates: VecDeque<Fate>,
        /// Calls for several from which on these are refused.
        batches_max: Option<usize>,
        calls: usize,
        taken: Vec<(u16, Vec<u8>)>,
        dead: Vec<u16>,
        lost: Vec<u16>,
    }

    impl Script {
        fn take(&mut self, one: &Outgoing<'_>) {
            let port = one.transmit.destination.port();
            self.taken.push((port, one.contents.to_vec()));
        }
    }

    impl Kernel for Script {
        fn send(&mut self, one: Outgoing<'_>) -> bool {
            self.calls += 1;
            match self.fates.pop_front().unwrap_or(Fate::Taken) {
                Fate::Taken => self.take(&one),
                Fate::Dead => self.dead.push(one.transmit.destination.port()),
                Fate::Full => return false,
            }
            true
        }

        fn send_many(&mut self, several: &[Outgoing<'_>]) -> Batch {
            self.calls += 1;
            if let Some(left) = &mut self.batches_max {
                let Some(less) = left.checked_sub(1) else {
                    return Batch::Off;
                };
                *left = less;
            }
            let mut taken = 0;
            for one in several.iter().take(TRANSMITS_MAX) {
                match self.fates.front() {
                    // As `sendmmsg`: an error of the first is looked at by `send`.
                    Some(Fate::Full | Fate::Dead) => break,
                    _ => _ = self.fates.pop_front(),
                }
                self.take(one);
                taken += 1;
            }
            match taken {
                0 => Batch::SendFirst,
                taken => Batch::Taken(taken),
            }
        }

        fn lose(&mut self, one: Outgoing<'_>) {
            self.lost.push(one.transmit.destination.port());
        }
    }

    fn push(outbox: &mut Outbox, kernel: &mut Script, port: u16, contents: &[u8]) {
        let transmit = Transmit {
            destination: SocketAddr::from(([127, 0, 0, 1], port)),
            ecn: None,
            size: contents.len(),
            segment_size: None,
            src_ip: None,
        };
        outbox.push(transmit, contents, kernel);
    }

    fn script(batches: bool, fates: &[Fate]) -> (Outbox, Script) {
        let script = Script {
            fates: fates.iter().copied().collect(),
            ..Script::default()
        };
        (Outbox::new(batches), script)
    }

    fn ports(kernel: &Script) -> Vec<u16> {
        kernel.taken.iter().map(|(port, _)| *port).collect()
    }

    #[test]
    fn transmissions_of_one_turn_leave_with_one_call() {
        let (mut outbox, mut kernel) = script(true, &[]);
        for port in 1..=20 {
            push(&mut outbox, &mut kernel, port, &[port as u8; 30]);
        }
        assert_eq!((kernel.calls, outbox.is_ready()), (0, true));
        outbox.flush(&mut kernel);
        assert_eq!(kernel.calls, 1);
        assert_eq!(ports(&kernel), Vec::from_iter(1..=20));
        assert_eq!(kernel.taken[6].1, [7; 30]);
        assert!(!outbox.is_ready());
        outbox.flush(&mut kernel);
        assert_eq!(kernel.calls, 1, "nothing waits");
    }

    #[test]
    fn without_the_call_for_several_each_leaves_by_itself() {
        let (mut outbox, mut kernel) = script(false, &[]);
        for port in 1..=5 {
            push(&mut outbox, &mut kernel, port, b"hello");
        }
        outbox.flush(&mut kernel);
        assert_eq!((kernel.calls, kernel.taken.len()), (5, 5));
    }

    #[test]
    fn a_call_that_is_refused_at_run_time_loses_and_repeats_nothing() {
        // The second batch is refused after the buffer was full in the first.
        let fates = [Fate::Taken, Fate::Taken, Fate::Full];
        let (mut outbox, mut kernel) = script(true, &fates);
        kernel.batches_max = Some(2);
        for port in 1..=6 {
            push(&mut outbox, &mut kernel, port, &[port as u8; 9]);
        }
        outbox.flush(&mut kernel);
        assert_eq!((ports(&kernel), outbox.batches), (vec![1, 2], true));
        outbox.unblock(&mut kernel);
        let all = (1..=6).map(|port| (u16::from(port), vec![port; 9]));
        assert_eq!(kernel.taken, Vec::from_iter(all));
        assert!(!outbox.batches && !outbox.is_blocked() && kernel.lost.is_empty());
        let calls = kernel.calls;
        for port in 7..=9 {
            push(&mut outbox, &mut kernel, port, b"hello");
        }
        outbox.flush(&mut kernel);
        assert_eq!(kernel.calls, calls + 3, "it is not asked again");
    }

    #[test]
    fn a_dead_destination_holds_up_no_other() {
        for batches in [true, false] {
            let fates = [Fate::Dead, Fate::Taken, Fate::Dead, Fate::Dead, Fate::Taken];
            let (mut outbox, mut kernel) = script(batches, &fates);
            for port in 1..=6 {
                push(&mut outbox, &mut kernel, port, b"hello");
            }
            outbox.flush(&mut kernel);
            assert_eq!(ports(&kernel), [2, 5, 6]);
            assert_eq!(kernel.dead, [1, 3, 4]);
            assert!(!outbox.is_blocked() && kernel.lost.is_empty());
        }
    }

    #[test]
    fn a_buffer_that_is_full_in_the_middle_keeps_the_rest_in_order() {
        for batches in [true, false] {
            let fates = [
                Fate::Taken,
                Fate::Taken,
                Fate::Full,
                Fate::Taken,
                Fate::Full,
            ];
            let (mut outbox, mut kernel) = script(batches, &fates);
            for port in 1..=5 {
                push(&mut outbox, &mut kernel, port, &[port as u8; 9]);
            }
            outbox.flush(&mut kernel);
            assert_eq!((ports(&kernel).len(), outbox.is_blocked()), (2, true));
            let calls = kernel.calls;
            outbox.flush(&mut kernel);
            assert_eq!(kernel.calls, calls, "it is not asked until it has room");
            push(&mut outbox, &mut kernel, 6, &[6; 9]);
            outbox.unblock(&mut kernel);
            assert_eq!((ports(&kernel).len(), outbox.is_blocked()), (3, true));
            outbox.unblock(&mut kernel);
            let all = (1..=6).map(|port| (u16::from(port), vec![port; 9]));
            assert_eq!(kernel.taken, Vec::from_iter(all));
            assert!(!outbox.is_blocked() && kernel.lost.is_empty());
        }
    }

    #[test]
    fn what_waits_has_a_bound() {
        let (mut outbox, mut kernel) = script(true, &[Fate::Full; 2]);
        for port in 0..TRANSMITS_MAX as u16 + 3 {
            push(&mut outbox, &mut kernel, port, b"hello");
        }
        // The first that finds no place has the kernel asked, and is kept.
        assert_eq!(kernel.lost, [33, 34]);
        assert_eq!(outbox.transmits.len(), TRANSMITS_MAX + 1);
        outbox.unblock(&mut kernel);
        outbox.unblock(&mut kernel);
        assert_eq!(ports(&kernel), Vec::from_iter(0..33));
        for port in 0..=16 {
            push(&mut outbox, &mut kernel, port, &[0; COPIED_BYTES_MAX]);
            assert!(outbox.bytes.len() <= BYTES_MAX);
        }
        assert_eq!(kernel.taken.len(), 33 + 16, "so many bytes do not wait");
    }

    #[test]
    fn a_large_transmission_leaves_by_itself_after_those_before_it() {
        let (mut outbox, mut kernel) = script(true, &[]);
        push(&mut outbox, &mut kernel, 1, b"hello");
        push(&mut outbox, &mut kernel, 2, &[0; COPIED_BYTES_MAX + 1]);
        assert_eq!((ports(&kernel), outbox.is_ready()), (vec![1, 2], false));
        kernel.fates.push_back(Fate::Full);
        push(&mut outbox, &mut kernel, 3, &[3; COPIED_BYTES_MAX + 1]);
        push(&mut outbox, &mut kernel, 4, b"hello");
        assert!(outbox.is_blocked());
        outbox.unblock(&mut kernel);
        assert_eq!(ports(&kernel), [1, 2, 3, 4]);
        assert_eq!(kernel.taken[2].1, [3; COPIED_BYTES_MAX + 1]);
    }

    #[test]
    fn nothing_is_lost_or_sent_twice() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..200 {
            let fates: Vec<_> = (0..400)
                .map(|_| match random(8) {
                    0 => Fate::Full,
                    1 => Fate::Dead,
                    _ => Fate::Taken,
                })
                .collect();
            let (mut outbox, mut kernel) = script(round % 2 == 0, &fates);
            kernel.batches_max = (round % 4 == 0).then(|| random(9) as usize);
            for port in 0..300_u16 {
                let size = [20, 1200, COPIED_BYTES_MAX + 1][random(3) as usize];
                let mut contents = vec![0; size];
                contents[..2].copy_from_slice(&port.to_be_bytes());
                push(&mut outbox, &mut kernel, port, &contents);
                if random(4) == 0 {
                    outbox.flush(&mut kernel);
                }
                if random(3) == 0 {
                    outbox.unblock(&mut kernel);
                }
            }
            while outbox.is_blocked() || outbox.is_ready() {
                outbox.unblock(&mut kernel);
            }
            let taken = ports(&kernel);
            assert!(taken.is_sorted(), "in order");
            assert!(
                kernel
                    .taken
                    .iter()
                    .all(|(port, bytes)| bytes[..2] == port.to_be_bytes())
            );
            let mut all = [taken, kernel.dead, kernel.lost].concat();
            all.sort_unstable();
            assert_eq!(all, Vec::from_iter(0..300), "each once");
        }
    }
}
