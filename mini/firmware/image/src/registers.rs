//! Registers, sleep instructions and the host's services behind safe
//! functions. Knows addresses and nothing else; all of `unsafe` that touches
//! the machine is here and in `pages.rs`.

use core::arch::asm;

use dunlin_mini_device::Registers;

/// The LAN9118, its place and its interrupt.
const ETHERNET: usize = 0x4020_0000;
const ETHERNET_IRQ: u32 = 13;
/// A CMSDK UART.
const UART_DATA: usize = 0x4000_4000;
const UART_CTRL: usize = 0x4000_4008;
const UART_BAUD: usize = 0x4000_4010;
/// Two LEDs.
const LED: usize = 0x4002_8000;
const SYSTICK_CTRL: usize = 0xe000_e010;
const SYSTICK_LOAD: usize = 0xe000_e014;
const SYSTICK_NOW: usize = 0xe000_e018;
const NVIC_ENABLE: usize = 0xe000_e100;
const NVIC_CLEAR: usize = 0xe000_e280;
const INTERRUPT_CONTROL: usize = 0xe000_ed04;
const RESET_CONTROL: usize = 0xe000_ed0c;

/// Ticks of SysTick and of the LAN9118 in a millisecond.
pub const TICKS_PER_MS: u32 = 25_000;
/// SysTick counts 24 bits.
const TICKS_MAX: u32 = 0xff_ffff;

fn read(address: usize) -> u32 {
    // SAFETY: the callers in this file name registers of the board only.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(address: usize, value: u32) {
    // SAFETY: as above; none of these registers makes the hardware touch memory.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// The registers of the Ethernet controller.
pub struct Ethernet;

impl Registers for Ethernet {
    fn read(&mut self, offset: usize) -> u32 {
        read(ETHERNET | offset & 0xfc)
    }

    fn write(&mut self, offset: usize, value: u32) {
        write(ETHERNET | offset & 0xfc, value);
    }
}

/// Makes interrupts wake the processor without being taken, and the UART send.
pub fn start() {
    // SAFETY: sets a flag of the processor.
    unsafe { asm!("cpsid i", options(nomem, nostack, preserves_flags)) };
    write(NVIC_ENABLE, 1 << ETHERNET_IRQ);
    write(UART_BAUD, 16);
    write(UART_CTRL, 1);
}

/// Sleeps for some ticks at most, or until the Ethernet controller asks for
/// attention; at once if it does.
pub fn sleep(ticks: u32) {
    write(SYSTICK_LOAD, ticks.min(TICKS_MAX));
    write(SYSTICK_NOW, 0);
    // Counts clocks of the processor, and becomes pending at zero.
    write(SYSTICK_CTRL, 7);
    // SAFETY: waits; what is pending wakes although it is not taken.
    unsafe { asm!("dsb", "wfi", options(nostack, preserves_flags)) };
    write(SYSTICK_CTRL, 0);
    write(INTERRUPT_CONTROL, 1 << 25);
    write(NVIC_CLEAR, 1 << ETHERNET_IRQ);
}

/// Sends a byte. The emulated UART is never busy.
pub fn print(byte: u8) {
    write(UART_DATA, u32::from(byte));
}

/// Switches the LEDs.
pub fn led(value: u8) {
    write(LED, u32::from(value));
}

/// Asks the emulator for something.
fn host(operation: u32, argument: u32) -> u32 {
    let result;
    // SAFETY: the two operations below take no pointer.
    unsafe {
        asm!("bkpt #0xab", inout("r0") operation => result, in("r1") argument,
            options(nostack, preserves_flags));
    }
    result
}

/// Seconds since 1970. The board has no clock with a battery, so this is the
/// host's.
pub fn seconds() -> u32 {
    host(0x11, 0)
}

/// Ends the emulator.
pub fn exit() -> ! {
    host(0x18, 0x2_0026);
    reset()
}

/// Begins again.
pub fn reset() -> ! {
    write(RESET_CONTROL, 0x05fa_0004);
    loop {
        core::hint::spin_loop();
    }
}
