//! Driver of the SMSC LAN9118 Ethernet controller, over its registers. Knows
//! no protocol and waits for no interrupt: the board sleeps until the
//! controller asks for attention, then polls.

/// The registers, each 32 bits, by their offsets in bytes.
pub trait Registers {
    /// Reads a register; some change by it.
    fn read(&mut self, offset: usize) -> u32;
    /// Writes a register.
    fn write(&mut self, offset: usize, value: u32);
}

const RX_DATA: usize = 0x00;
const TX_DATA: usize = 0x20;
const RX_STATUS: usize = 0x40;
const TX_STATUS: usize = 0x48;
const IRQ_CFG: usize = 0x54;
const INT_STS: usize = 0x58;
const INT_EN: usize = 0x5c;
const FIFO_INT: usize = 0x68;
const TX_CFG: usize = 0x70;
const HW_CFG: usize = 0x74;
const RX_FIFO_INF: usize = 0x7c;
const TX_FIFO_INF: usize = 0x80;
const MAC_CMD: usize = 0xa4;
const MAC_DATA: usize = 0xa8;
/// A clock of 25 MHz that never stops.
const FREE_RUN: usize = 0x9c;

/// Indirect registers of the MAC.
const MAC_CR: u32 = 1;
const ADDRH: u32 = 2;
const ADDRL: u32 = 3;

/// Interrupt for a frame in the receive queue.
const RSFL: u32 = 1 << 3;
/// The check sequence at the end of each received frame.
const FCS: usize = 4;
/// Polls of the MAC's command register at most; it answers at once, unless
/// the controller is gone.
const POLLS: u32 = 1000;

/// A controller.
#[derive(Debug)]
pub struct Lan9118<R>(R);

impl<R: Registers> Lan9118<R> {
    /// A controller that was not touched yet.
    pub const fn new(registers: R) -> Self {
        Self(registers)
    }

    /// Ticks of 40 ns, wrapping around.
    pub fn ticks(&mut self) -> u32 {
        self.0.read(FREE_RUN)
    }

    /// Begins to send and receive.
    pub fn start(&mut self, mac: &[u8; 6]) {
        let [a, b, c, d, e, f] = *mac;
        // Whole frames in the send queue before one leaves; 5 KB of it.
        self.0.write(HW_CFG, 1 << 20 | 5 << 16);
        self.0.write(TX_CFG, 1 << 1);
        self.mac(ADDRH, u32::from_le_bytes([e, f, 0, 0]));
        self.mac(ADDRL, u32::from_le_bytes([a, b, c, d]));
        // An interrupt, active high and push-pull, as soon as a frame is there.
        self.0.write(FIFO_INT, 0);
        self.0.write(INT_STS, u32::MAX);
        self.0.write(INT_EN, RSFL);
        self.0.write(IRQ_CFG, 0x111);
        // Sender and receiver on.
        self.mac(MAC_CR, 1 << 2 | 1 << 3);
    }

    /// Stops, and forgets the frames that were not fetched.
    pub fn stop(&mut self) {
        self.mac(MAC_CR, 0);
        self.0.write(INT_EN, 0);
        while self.receive(&mut []).is_some() {}
    }

    fn mac(&mut self, register: u32, value: u32) {
        self.0.write(MAC_DATA, value);
        self.0.write(MAC_CMD, 1 << 31 | register);
        for _ in 0..POLLS {
            if self.0.read(MAC_CMD) >> 31 == 0 {
                break;
            }
        }
    }

    /// Sends a frame. One that does not fit into the queue is lost.
    pub fn send(&mut self, frame: &[u8]) {
        let len = frame.len();
        // The whole status queue is emptied; it is not used.
        while self.0.read(TX_FIFO_INF) >> 16 & 0xff != 0 {
            self.0.read(TX_STATUS);
        }
        let room = self.0.read(TX_FIFO_INF) & 0xffff;
        let Ok(size) = u32::try_from(len) else {
            return;
        };
        // 11 bits for the length, 8 bytes of commands, 3 of padding.
        if size >= 1 << 11 || room < size + 12 {
            return;
        }
        // First and last segment in one.
        self.0.write(TX_DATA, 1 << 13 | 1 << 12 | size);
        self.0.write(TX_DATA, size);
        let (words, rest) = frame.as_chunks();
        for word in words {
            self.0.write(TX_DATA, u32::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            self.0.write(TX_DATA, u32::from_le_bytes(last));
        }
    }

    /// Fetches a frame and gives its length, which is zero if the frame was
    /// damaged or longer than the buffer. Nothing if there is no frame.
    pub fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        // Before the queue is looked at, or a frame in between would be missed.
        self.0.write(INT_STS, RSFL);
        if self.0.read(RX_FIFO_INF) >> 16 & 0xff == 0 {
            return None;
        }
        let status = self.0.read(RX_STATUS);
        let bytes = (status >> 16 & 0x3fff) as usize;
        let len = bytes.saturating_sub(FCS);
        let Some(frame) = frame.get_mut(..len).filter(|_| status & 1 << 15 == 0) else {
            self.discard(bytes.div_ceil(4));
            return Some(0);
        };
        let (words, rest) = frame.as_chunks_mut();
        for to in words {
            *to = self.0.read(RX_DATA).to_le_bytes();
        }
        // A word with the end of the frame, and what the check sequence begins with.
        if !rest.is_empty() {
            let last = self.0.read(RX_DATA).to_le_bytes();
            for (to, from) in rest.iter_mut().zip(&last) {
                *to = *from;
            }
        }
        self.discard(bytes.div_ceil(4) - len.div_ceil(4));
        Some(len)
    }

    /// Drops words of the frame whose status was read. The controller could skip
    /// to the next frame by itself, but not all of them count right after it.
    fn discard(&mut self, words: usize) {
        for _ in 0..words {
            self.0.read(RX_DATA);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::vec::Vec;

    use super::*;

    /// A controller as its data sheet describes it, as far as it is used.
    #[derive(Debug, Default)]
    struct Chip {
        mac: [u32; 4],
        mac_data: u32,
        statuses: VecDeque<u32>,
        words: VecDeque<u32>,
        sent: Vec<u32>,
        room: u32,
        enabled: u32,
        pending: u32,
    }

    impl Chip {
        fn arrives(&mut self, frame: &[u8], damaged: bool) {
            let len = frame.len() + FCS;
            let status = u32::try_from(len).unwrap() << 16 | u32::from(damaged) << 15;
            self.statuses.push_back(status);
            let mut bytes = frame.to_vec();
            bytes.extend_from_slice(&[0xcc; FCS]);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let words = bytes
                .chunks(4)
                .map(|c| u32::from_le_bytes(c.try_into().unwrap()));
            self.words.extend(words);
            self.pending |= RSFL;
        }
    }

    impl Registers for &mut Chip {
        fn read(&mut self, offset: usize) -> u32 {
            match offset {
                RX_FIFO_INF => u32::try_from(self.statuses.len()).unwrap() << 16,
                RX_STATUS => self.statuses.pop_front().unwrap(),
                RX_DATA => self.words.pop_front().unwrap(),
                TX_FIFO_INF => self.room,
                MAC_CMD => 0,
                _ => panic!("{offset:#x}"),
            }
        }

        fn write(&mut self, offset: usize, value: u32) {
            match offset {
                TX_DATA => self.sent.push(value),
                MAC_DATA => self.mac_data = value,
                MAC_CMD => self.mac[(value & 0xff) as usize] = self.mac_data,
                INT_STS => self.pending &= !value,
                INT_EN => self.enabled = value,
                _ => {}
            }
        }
    }

    #[test]
    fn the_mac_knows_its_address() {
        let mut chip = Chip::default();
        Lan9118::new(&mut chip).start(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(chip.mac, [0, 0xc, 0x0605, 0x0403_0201]);
        assert_eq!(chip.enabled, RSFL);
        Lan9118::new(&mut chip).stop();
        assert_eq!((chip.mac[1], chip.enabled), (0, 0));
    }

    #[test]
    fn frames_of_all_lengths_arrive() {
        for len in 0..70 {
            let frame: Vec<u8> = (0..len).collect();
            let mut chip = Chip::default();
            chip.arrives(&frame, false);
            chip.arrives(b"next", false);
            let mut buffer = [0xee; 80];
            let mut driver = Lan9118::new(&mut chip);
            assert_eq!(driver.receive(&mut buffer), Some(frame.len()));
            assert_eq!(buffer[..frame.len()], frame);
            assert_eq!(buffer[frame.len()], 0xee);
            assert_eq!(driver.receive(&mut buffer), Some(4));
            assert_eq!(driver.receive(&mut buffer), None);
            assert_eq!(chip.pending, 0);
        }
    }

    #[test]
    fn damaged_and_long_frames_are_dropped() {
        for (len, damaged) in [(3, true), (60, true), (81, false), (1514, false)] {
            let mut chip = Chip::default();
            chip.arrives(&std::vec![7; len], damaged);
            let mut buffer = [0xee; 80];
            let mut driver = Lan9118::new(&mut chip);
            assert_eq!(driver.receive(&mut buffer), Some(0), "{len}");
            assert_eq!(driver.receive(&mut buffer), None);
            assert_eq!(buffer, [0xee; 80]);
            assert!(chip.words.is_empty(), "{len}");
        }
    }

    #[test]
    fn frames_leave_in_words() {
        let mut chip = Chip {
            room: 2036,
            ..Chip::default()
        };
        Lan9118::new(&mut chip).send(&[1, 2, 3, 4, 5]);
        assert_eq!(chip.sent, [0x3005, 5, 0x0403_0201, 5]);
    }

    #[test]
    fn frames_without_room_are_lost() {
        for (room, len) in [(70, 60), (4000, 2048)] {
            let mut chip = Chip {
                room,
                ..Chip::default()
            };
            Lan9118::new(&mut chip).send(&std::vec![0; len]);
            assert!(chip.sent.is_empty(), "{len}");
        }
    }
}
