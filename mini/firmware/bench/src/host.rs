//! The machine around the emulator, by Arm's semihosting: its console, its
//! files and the command line.

use core::arch::asm;

/// Calls the host. What the words of `arguments` mean depends on `operation`.
fn call(operation: usize, arguments: &mut [usize]) -> usize {
    let mut result = operation;
    // SAFETY: the emulator reads and writes only what the words point to,
    // which the callers in this file lend exclusively.
    unsafe {
        asm!("bkpt 0xab", inout("r0") result, in("r1") arguments.as_mut_ptr());
    }
    result
}

const OPEN: usize = 0x01;
const WRITE: usize = 0x05;
const READ: usize = 0x06;
const GET_COMMAND_LINE: usize = 0x15;
const EXIT_EXTENDED: usize = 0x20;
const APPLICATION_EXIT: usize = 0x20026;

/// A file of the host.
pub struct File(usize);

impl File {
    /// Opens a file; `name` ends in a zero byte. Mode 1 reads, 4 writes.
    pub fn open(name: &[u8], mode: usize) -> Option<Self> {
        let length = name.len().checked_sub(1)?;
        match call(OPEN, &mut [name.as_ptr() as usize, mode, length]) {
            usize::MAX => None,
            handle => Some(Self(handle)),
        }
    }

    /// Fills `to`, or tells that the file has less.
    pub fn read(&mut self, to: &mut [u8]) -> bool {
        call(READ, &mut [self.0, to.as_mut_ptr() as usize, to.len()]) == 0
    }
}

impl core::fmt::Write for File {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        match call(WRITE, &mut [self.0, text.as_ptr() as usize, text.len()]) {
            0 => Ok(()),
            _ => Err(core::fmt::Error),
        }
    }
}

/// The standard output of the emulator.
pub fn console() -> File {
    File::open(b":tt\0", 4).unwrap_or(File(1))
}

/// The command line.
pub fn command_line(to: &mut [u8; 256]) -> &[u8] {
    let mut arguments = [to.as_mut_ptr() as usize, to.len()];
    let failed = call(GET_COMMAND_LINE, &mut arguments);
    let [_, length] = arguments;
    match failed {
        0 => to.get(..length).unwrap_or(&[]),
        _ => &[],
    }
}

/// Ends the emulator with a status.
pub fn exit(status: usize) -> ! {
    call(EXIT_EXTENDED, &mut [APPLICATION_EXIT, status]);
    loop {
        core::hint::spin_loop();
    }
}
