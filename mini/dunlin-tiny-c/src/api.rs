//! The functions for C. Everything here turns pointers into values and back;
//! what is done with them is elsewhere, in safe code.
//!
//! Every function that can fail gives a code of `dunlin_code`, zero for
//! success. A null pointer where something must be is refused, and so is a
//! call from inside of a callback.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_char;
use core::mem::{align_of, size_of};
use core::slice;

use dunlin_mini_crypto::{POINT_LEN, Point};
use dunlin_mqtt_mini as mqtt;
use dunlin_mqtt_mini::{Message, Options, Qos, Will};
use dunlin_quic_mini::{Config, Resume};

use crate::codes::{Code, text};
use crate::device::{Believed, Device, Given, Trust};
use crate::port::Calls;
use crate::types::{Bytes, Connect, Phase, Port, Publish, Room, Rooms};

/// Bytes of memory that are enough for a client on every machine, aligned to
/// 8. dunlin_size tells what this machine needs.
pub const DUNLIN_STATE_SIZE: usize = 4096;

const _: () = assert!(size_of::<Handle>() <= DUNLIN_STATE_SIZE);
const _: () = assert!(align_of::<Handle>() <= 8);

/// A client. One thread at a time may use it.
pub struct Handle {
    /// Whether a call is under way, so that a callback cannot make another.
    busy: Cell<bool>,
    device: UnsafeCell<Device>,
}

impl core::fmt::Debug for Handle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handle")
    }
}

/// Longest slice that there can be. A length beyond it is a negative number that
/// was taken for one.
const LONGEST: usize = isize::MAX.cast_unsigned();

/// The bytes of a program.
///
/// # Safety
///
/// They are there, and do not change, while the slice is in use.
const unsafe fn view<'a>(bytes: Bytes) -> Result<&'a [u8], Code> {
    match bytes.len {
        0 => Ok(&[]),
        _ if bytes.data.is_null() => Err(Code::NullPointer),
        // SAFETY: promised by the caller.
        1..=LONGEST => Ok(unsafe { slice::from_raw_parts(bytes.data, bytes.len) }),
        _ => Err(Code::TooLarge),
    }
}

/// As [`view`], for what must not be empty.
///
/// # Safety
///
/// As [`view`].
const unsafe fn named<'a>(topic: Bytes) -> Result<&'a [u8], Code> {
    // SAFETY: promised by the caller.
    match unsafe { view(topic) } {
        Ok([]) => Err(Code::NoTopic),
        done => done,
    }
}

/// A buffer of a program.
///
/// # Safety
///
/// It is not used otherwise while the slice is in use.
const unsafe fn take<'a>(room: Room) -> Result<&'a mut [u8], Code> {
    match room.len {
        0 => Ok(&mut []),
        _ if room.data.is_null() => Err(Code::NullPointer),
        // SAFETY: promised by the caller.
        1..=LONGEST => Ok(unsafe { slice::from_raw_parts_mut(room.data, room.len) }),
        _ => Err(Code::Memory),
    }
}

/// Does something with a client.
///
/// # Safety
///
/// `client` is null or came from [`dunlin_new`], and one thread uses it.
unsafe fn with(client: *mut Handle, act: impl FnOnce(&mut Device) -> Result<(), Code>) -> Code {
    // SAFETY: null or a client, says the caller.
    let Some(handle) = (unsafe { client.as_ref() }) else {
        return Code::NullPointer;
    };
    if handle.busy.replace(true) {
        return Code::Busy;
    }
    // SAFETY: `busy` lets no second call in.
    let done = act(unsafe { &mut *handle.device.get() });
    handle.busy.set(false);
    match done {
        Ok(()) => Code::Ok,
        Err(code) => code,
    }
}

/// As [`with`], for what has a number: `id`, if it is not null, gets it, or zero.
///
/// # Safety
///
/// As [`with`]; `id` is null or points to what its type says.
unsafe fn numbered(
    client: *mut Handle,
    id: *mut u16,
    act: impl FnOnce(&mut Device) -> Result<u16, Code>,
) -> Code {
    let mut given = 0;
    // SAFETY: promised by the caller.
    let code = unsafe {
        with(client, |device| {
            given = act(device)?;
            Ok(())
        })
    };
    if !id.is_null() {
        // SAFETY: not null, and what its type says.
        unsafe { id.write(given) };
    }
    code
}

/// Looks something up, with a default for a client that is null or busy.
///
/// # Safety
///
/// Like [`with`].
unsafe fn ask<T: Copy>(client: *const Handle, default: T, look: impl FnOnce(&Device) -> T) -> T {
    let mut found = default;
    // SAFETY: handed on.
    unsafe {
        with(client.cast_mut(), |device| {
            found = look(device);
            Ok(())
        });
    }
    found
}

/// Bytes of memory that a client needs on this machine.
#[unsafe(no_mangle)]
pub extern "C" fn dunlin_size() -> usize {
    size_of::<Handle>()
}

/// The buffer for datagrams, and the others.
///
/// # Safety
///
/// Like [`dunlin_new`].
unsafe fn given(buffers: &Rooms) -> Result<(&'static mut [u8], Given), Code> {
    // SAFETY: the buffers are not used otherwise, says the caller.
    let (datagram, given) = unsafe {
        let given = Given::new(
            take(buffers.hello)?,
            take(buffers.handshake)?,
            take(buffers.send)?,
            take(buffers.receive)?,
        );
        (take(buffers.datagram)?, given)
    };
    if datagram.len() < 1200 {
        return Err(Code::Memory);
    }
    Ok((datagram, given))
}

/// Makes a client in `memory`, which belongs to it from now on, as do the
/// buffers. `port` and `buffers` themselves are copied. `client` gets the client,
/// and is left alone if there is none. It needs no end: memory is used again by
/// making another client.
///
/// # Safety
///
/// Pointers are null or point to what their types say; memory and buffers stay
/// where they are, and are not used otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_new(
    memory: Room,
    port: *const Port,
    buffers: *const Rooms,
    client: *mut *mut Handle,
) -> Code {
    // SAFETY: null or what their types say, says the caller.
    let (port, buffers) = unsafe { (port.as_ref(), buffers.as_ref()) };
    let (Some(port), Some(buffers)) = (port, buffers) else {
        return Code::NullPointer;
    };
    // SAFETY: the callbacks are what the type says, says the caller.
    let Some(calls) = (unsafe { Calls::new(*port) }) else {
        return Code::NullPointer;
    };
    if client.is_null() || memory.data.is_null() {
        return Code::NullPointer;
    }
    let place = memory.data.cast::<Handle>();
    if memory.len < size_of::<Handle>() || !place.is_aligned() {
        return Code::Memory;
    }
    // SAFETY: the buffers are not used otherwise, says the caller.
    let (datagram, given) = match unsafe { given(buffers) } {
        Ok(given) => given,
        Err(code) => return code,
    };
    // SAFETY: large enough, aligned and not shared.
    unsafe {
        place.write(Handle {
            busy: Cell::new(false),
            device: UnsafeCell::new(Device::new(calls, datagram, given)),
        });
        client.write(place);
    }
    Code::Ok
}

/// Who the broker must be, of what a program says.
///
/// # Safety
///
/// Like [`dunlin_connect`].
unsafe fn trust(how: &Connect) -> Result<Trust, Code> {
    // SAFETY: the keys stay until the connection is over, says the caller.
    let keys = unsafe { view::<'static>(how.keys) }?;
    let (keys, rest) = keys.as_chunks::<POINT_LEN>();
    if !rest.is_empty() {
        return Err(Code::KeyLength);
    }
    if !keys.is_empty() {
        return Ok(Trust::Keys(keys));
    }
    #[cfg(feature = "authority")]
    {
        use dunlin_quic_mini::{Authority, Name};

        // SAFETY: like the keys.
        let (authority, name, address) = unsafe {
            (
                view::<'static>(how.authority)?,
                view(how.name)?,
                view(how.address)?,
            )
        };
        if authority.is_empty() {
            return Err(Code::NoKey);
        }
        let key: &Point = authority.try_into().map_err(|_| Code::KeyLength)?;
        let name = match (name, address.len()) {
            ([], 4 | 16) => Name::Address(address),
            ([], _) => return Err(Code::NoName),
            (name, _) => Name::Host(name),
        };
        let now = Some(how.unix_time).filter(|&now| now > 0);
        Ok(Trust::Authority(Authority::new(key, name, now)))
    }
    #[cfg(not(feature = "authority"))]
    Err(Code::NoKey)
}

/// Adds what the broker is shown if it asks who the device is.
#[cfg(feature = "client-certificate")]
fn believed(
    trust: Trust,
    certificates: &'static [u8],
    key: &'static [u8],
) -> Result<Believed, Code> {
    use dunlin_quic_mini::{Identified, Identity};

    let key = match (certificates, key) {
        ([], []) => &[0; 32],
        (_, key) => key.try_into().map_err(|_| Code::KeyLength)?,
    };
    Ok(Identified::new(trust, Identity { certificates, key }))
}

/// This build shows nothing.
#[cfg(not(feature = "client-certificate"))]
const fn believed(trust: Trust, certificates: &[u8], _: &[u8]) -> Result<Believed, Code> {
    match certificates {
        [] => Ok(trust),
        _ => Err(Code::NoIdentity),
    }
}

/// The will, of what a program says.
///
/// # Safety
///
/// Like [`dunlin_connect`].
unsafe fn will(how: &Connect) -> Result<Option<Will<'static>>, Code> {
    // SAFETY: null or a message, says the caller.
    let Some(will) = (unsafe { how.will.as_ref() }) else {
        return Ok(None);
    };
    // SAFETY: they stay until the connection is over, says the caller.
    let (topic, payload) = unsafe { (named(will.topic)?, view(will.payload)?) };
    Ok(Some(Will {
        message: Message {
            topic,
            payload,
            qos: qos(will.qos)?,
            retain: will.retain,
        },
        delay: how.will_delay,
    }))
}

/// Begins a connection. What was there before is forgotten without a word to
/// the broker, even if there is nothing to begin. `DUNLIN_CODE_TOO_LARGE` says
/// that names and will together do not fit into the send buffer; without early
/// data, dunlin_run says so.
///
/// # Safety
///
/// Pointers are null or point to what their types say. Keys, certificates, name,
/// address, client identifier, user, password and the bytes of the will stay where
/// they are until the connection is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_connect(client: *mut Handle, how: *const Connect) -> Code {
    // SAFETY: null or what its type says, says the caller.
    let Some(how) = (unsafe { how.as_ref() }) else {
        return Code::NullPointer;
    };
    // SAFETY: promised by the caller.
    unsafe {
        with(client, |device| {
            device.forget();
            connect(device, how)
        })
    }
}

/// # Safety
///
/// Like [`dunlin_connect`].
unsafe fn connect(device: &mut Device, how: &Connect) -> Result<(), Code> {
    // SAFETY: the ticket is there for the call, the others longer.
    let (trust, identity, ticket, name, options) = unsafe {
        let options = Options {
            client_id: view(how.client_id)?,
            keep_alive: how.keep_alive,
            expiry: how.expiry,
            user: view(how.user)?,
            password: view(how.password)?,
            will: will(how)?,
        };
        let identity = (view(how.certificates)?, view(how.private_key)?);
        (
            trust(how)?,
            identity,
            view(how.ticket)?,
            view(how.name)?,
            options,
        )
    };
    let trust = believed(trust, identity.0, identity.1)?;
    let resume = (!ticket.is_empty()).then_some(Resume {
        ticket,
        age_ms: how.ticket_age_ms,
        early: how.early,
    });
    let config = Config {
        name,
        alpn: b"mqtt",
        idle_ms: how.idle_ms,
        max_datagram: 1472,
        token: &[],
        resume,
    };
    Ok(device.connect(trust, &config, options)?)
}

/// Sends and takes what there is, and tells what happened. `sleep_ms`, if it is
/// not null, says for how long nothing needs to be done, unless a datagram arrives
/// or another function is called: 0xffffffff without a limit, and zero after an
/// event, so that the program can act on it first. A code other than zero is the
/// end of the connection, and `DUNLIN_CODE_SESSION_STATE` says that there is none.
///
/// # Safety
///
/// Pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_run(client: *mut Handle, sleep_ms: *mut u32) -> Code {
    let mut sleep = u32::MAX;
    // SAFETY: promised by the caller.
    let code = unsafe {
        with(client, |device| {
            sleep = device.run()?;
            Ok(())
        })
    };
    if !sleep_ms.is_null() {
        // SAFETY: not null, and what its type says.
        unsafe { sleep_ms.write(sleep) };
    }
    code
}

/// Where the client is; `DUNLIN_PHASE_IDLE` also from inside of a callback.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_status(client: *const Handle) -> Phase {
    // SAFETY: promised by the caller.
    unsafe { ask(client, Phase::Idle, Device::phase) }
}

/// A quality of service that this build has.
const fn qos(value: u8) -> Result<Qos, mqtt::Error> {
    match value {
        0 => Ok(Qos::AtMostOnce),
        1 => Ok(Qos::AtLeastOnce),
        #[cfg(feature = "qos2")]
        2 => Ok(Qos::ExactlyOnce),
        _ => Err(mqtt::Error::Qos),
    }
}

/// Publishes a message. `id`, if it is not null, gets the number under which it
/// will be acknowledged, zero with QoS 0. The message is copied, and what is not
/// acknowledged before the connection ends is for the program to publish `again`.
/// `DUNLIN_CODE_FULL` and `DUNLIN_CODE_QUOTA` mean: once more after the next
/// dunlin_run.
///
/// # Safety
///
/// Pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_publish(
    client: *mut Handle,
    message: *const Publish,
    id: *mut u16,
) -> Code {
    // SAFETY: promised by the caller; the message is there for the call.
    unsafe {
        numbered(client, id, |device| {
            let publish = message.as_ref().ok_or(Code::NullPointer)?;
            let message = Message {
                topic: named(publish.topic)?,
                payload: view(publish.payload)?,
                qos: qos(publish.qos)?,
                retain: publish.retain,
            };
            Ok(device.publish(publish.again, publish.alias, &message)?)
        })
    }
}

/// Asks for the messages of a topic filter, with at most the quality `qos_max`.
/// `id`, if it is not null, gets the number of the answer. The filter is copied;
/// `DUNLIN_CODE_FULL` as above.
///
/// # Safety
///
/// Pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_subscribe(
    client: *mut Handle,
    filter: Bytes,
    qos_max: u8,
    id: *mut u16,
) -> Code {
    // SAFETY: promised by the caller; the filter is there for the call.
    unsafe {
        numbered(client, id, |device| {
            Ok(device.subscribe(qos(qos_max)?, named(filter)?)?)
        })
    }
}

/// Ends the subscription of a topic filter. `id`, if it is not null, gets the
/// number of the answer. The filter is copied; `DUNLIN_CODE_FULL` as above.
///
/// # Safety
///
/// Pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_unsubscribe(
    client: *mut Handle,
    filter: Bytes,
    id: *mut u16,
) -> Code {
    // SAFETY: promised by the caller; the filter is there for the call.
    unsafe { numbered(client, id, |device| Ok(device.unsubscribe(named(filter)?)?)) }
}

/// Ends the session in order: what was written still goes out. Go on with
/// dunlin_run until the phase is `DUNLIN_PHASE_CLOSED`. `DUNLIN_CODE_FULL` as
/// above.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_disconnect(client: *mut Handle) -> Code {
    // SAFETY: promised by the caller.
    unsafe { with(client, |device| Ok(device.disconnect()?)) }
}

/// Copies the newest ticket of the connection into `room`, to resume with. `len`
/// gets its length, zero if the broker gave none. If `room` is too small, nothing
/// is copied, the code is `DUNLIN_CODE_MEMORY`, and `len` is the length needed.
/// Ask before the next dunlin_connect. The holder of the ticket is believed to be
/// the broker, so keep it as a secret.
///
/// # Safety
///
/// Pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_ticket(client: *mut Handle, room: Room, len: *mut usize) -> Code {
    if len.is_null() {
        return Code::NullPointer;
    }
    let mut needed = 0;
    // SAFETY: promised by the caller; the room is not used otherwise during the call.
    let code = unsafe {
        with(client, |device| {
            let ticket = device.ticket();
            needed = ticket.len();
            let room = take(room)?;
            let room = room.get_mut(..needed).ok_or(Code::Memory)?;
            for (to, from) in room.iter_mut().zip(ticket) {
                *to = *from;
            }
            Ok(())
        })
    };
    // SAFETY: not null, and what its type says.
    unsafe { len.write(needed) };
    code
}

/// Goes on from another address: to be called after the network has changed.
/// Refused by a build without migration.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_migrate(client: *mut Handle) -> Code {
    // SAFETY: promised by the caller.
    unsafe { with(client, |device| Ok(device.migrate()?)) }
}

/// Changes the keys of the connection. Refused by a build without key updates.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_update_keys(client: *mut Handle) -> Code {
    // SAFETY: promised by the caller.
    unsafe { with(client, |device| Ok(device.update_keys()?)) }
}

/// The reason code of MQTT behind `DUNLIN_CODE_REFUSED` and
/// `DUNLIN_CODE_DISCONNECTED`; dunlin_reason_text has it in words.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_reason(client: *const Handle) -> u8 {
    // SAFETY: promised by the caller.
    unsafe { ask(client, 0, Device::reason) }
}

/// The number that the broker gave behind `DUNLIN_CODE_CLOSED_BY_PEER`, which is
/// one of QUIC, or 0x100 and an alert of TLS, and behind
/// `DUNLIN_CODE_CLOSED_BY_APPLICATION`.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_peer_code(client: *const Handle) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { ask(client, 0, Device::peer_code) }
}

/// Whether the broker took the ticket.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_is_resumed(client: *const Handle) -> bool {
    // SAFETY: promised by the caller.
    unsafe { ask(client, false, Device::is_resumed) }
}

/// Whether the broker took what was sent before it had answered. If not, it was
/// sent again.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_took_early_data(client: *const Handle) -> bool {
    // SAFETY: promised by the caller.
    unsafe { ask(client, false, Device::took_early_data) }
}

/// The round-trip time in milliseconds.
///
/// # Safety
///
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dunlin_rtt_ms(client: *const Handle) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { ask(client, 0, Device::rtt) }
}

/// What a `dunlin_code` means, in English: a string that ends with a zero and is
/// there for ever. Any number may be asked for. A program that does not call this
/// has no texts in it.
#[unsafe(no_mangle)]
pub extern "C" fn dunlin_error_text(code: u8) -> *const c_char {
    text(code).as_ptr()
}

/// As dunlin_error_text, for reason codes of MQTT from 128 on.
#[unsafe(no_mangle)]
pub extern "C" fn dunlin_reason_text(reason: u8) -> *const c_char {
    mqtt::reason_text(reason).as_ptr()
}
