//! An image with nothing but the QUIC engine and a loop that calls all of it,
//! to weigh it. Cryptography, network and clock are open symbols. SAFETY: it never
//! runs.

#![no_std]
#![no_main]
#![allow(
    clippy::deref_addrof,
    reason = "a `static mut` is not to be referred to in another way"
)]

use dunlin_mini_crypto::*;
use dunlin_quic_mini::*;
unsafe extern "C" {
    fn x_random(p: *mut u8, n: usize) -> bool;
    fn x_hash(h: *mut u8);
    fn x_update(h: *mut u8, p: *const u8, n: usize);
    fn x_finish(h: *mut u8, o: *mut u8);
    fn x_generate(g: u16, s: *mut u8, p: *mut u8) -> bool;
    fn x_agree(s: *const u8, p: *const u8, n: usize, o: *mut u8) -> bool;
    fn x_verify(k: *const u8, d: *const u8, s: *const u8) -> bool;
    fn x_seal(
        k: *const u8,
        n: *const u8,
        a: *const u8,
        al: usize,
        d: *mut u8,
        dl: usize,
        t: *mut u8,
    );
    fn x_open(
        k: *const u8,
        n: *const u8,
        a: *const u8,
        al: usize,
        d: *mut u8,
        dl: usize,
        t: *const u8,
    ) -> bool;
    fn x_mask(k: *const u8, b: *mut u8);
    fn x_net(p: *mut u8, n: usize) -> usize;
    fn x_now() -> u32;
    fn x_send(p: *const u8, n: usize);
    fn no_panic() -> !;
}
struct X;
fn ok(b: bool, e: CryptoError) -> Result<(), CryptoError> {
    if b { Ok(()) } else { Err(e) }
}
fn key(key: &SuiteKey) -> *const u8 {
    key.as_flattened().as_ptr()
}
impl Crypto for X {
    type Hash = [u8; 108];
    type Secret = [u8; 32];
    type Aead = SuiteKey;
    type Block = SuiteKey;
    #[cfg(feature = "chacha20-poly1305")]
    const SUITES: &'static [Suite] = &[Suite::ChaCha20Poly1305, Suite::Aes128Gcm];
    const GROUPS: &'static [Group] = &[Group::X25519, Group::Secp256r1];
    fn random(&mut self, o: &mut [u8]) -> Result<(), CryptoError> {
        ok(
            unsafe { x_random(o.as_mut_ptr(), o.len()) },
            CryptoError::Entropy,
        )
    }
    fn hash(&mut self) -> [u8; 108] {
        let mut h = [0; 108];
        unsafe { x_hash(h.as_mut_ptr()) };
        h
    }
    fn update(&mut self, h: &mut [u8; 108], d: &[u8]) {
        unsafe { x_update(h.as_mut_ptr(), d.as_ptr(), d.len()) }
    }
    fn finish(&mut self, mut h: [u8; 108]) -> Digest {
        let mut o = [0; 32];
        unsafe { x_finish(h.as_mut_ptr(), o.as_mut_ptr()) };
        o
    }
    fn generate(&mut self, g: Group) -> Result<([u8; 32], Share), CryptoError> {
        let mut s = [0; 32];
        let mut p = [0; 65];
        ok(
            unsafe { x_generate(g.number(), s.as_mut_ptr(), p.as_mut_ptr()) },
            CryptoError::Entropy,
        )?;
        Ok((s, Share::point(&p)))
    }
    fn agree(&mut self, s: &[u8; 32], p: &[u8]) -> Result<Digest, CryptoError> {
        let mut o = [0; 32];
        ok(
            unsafe { x_agree(s.as_ptr(), p.as_ptr(), p.len(), o.as_mut_ptr()) },
            CryptoError::BadPoint,
        )?;
        Ok(o)
    }
    fn verify(&mut self, k: &Point, d: &Digest, s: &[u8; 64]) -> Result<(), CryptoError> {
        ok(
            unsafe { x_verify(k.as_ptr(), d.as_ptr(), s.as_ptr()) },
            CryptoError::BadSignature,
        )
    }
    fn aead(&mut self, _: Suite, k: &SuiteKey) -> SuiteKey {
        *k
    }
    fn seal(&mut self, k: &SuiteKey, n: &[u8; 12], a: &[u8], d: &mut [u8]) -> [u8; 16] {
        let mut t = [0; 16];
        unsafe {
            x_seal(
                key(k),
                n.as_ptr(),
                a.as_ptr(),
                a.len(),
                d.as_mut_ptr(),
                d.len(),
                t.as_mut_ptr(),
            )
        };
        t
    }
    fn open(
        &mut self,
        k: &SuiteKey,
        n: &[u8; 12],
        a: &[u8],
        d: &mut [u8],
        t: &[u8; 16],
    ) -> Result<(), CryptoError> {
        ok(
            unsafe {
                x_open(
                    key(k),
                    n.as_ptr(),
                    a.as_ptr(),
                    a.len(),
                    d.as_mut_ptr(),
                    d.len(),
                    t.as_ptr(),
                )
            },
            CryptoError::BadTag,
        )
    }
    fn block(&mut self, _: Suite, k: &SuiteKey) -> SuiteKey {
        *k
    }
    fn mask(&mut self, k: &SuiteKey, b: &mut [u8; 16]) {
        unsafe { x_mask(key(k), b.as_mut_ptr()) }
    }
}
#[cfg(not(feature = "authority"))]
type T = Pinned<'static>;
#[cfg(feature = "authority")]
type T = Authority<'static>;
static KEYS: [Point; 1] = [[7; 65]];
#[cfg(not(feature = "authority"))]
fn trusted() -> T {
    Pinned::new(&KEYS)
}
#[cfg(feature = "authority")]
fn trusted() -> T {
    Authority::new(&KEYS[0], Name::Host(b"broker"), Some(unsafe { x_now() }))
}
#[cfg(not(feature = "client-certificate"))]
type V = T;
#[cfg(not(feature = "client-certificate"))]
fn verifier() -> V {
    trusted()
}
#[cfg(feature = "client-certificate")]
type V = Identified<'static, T>;
#[cfg(feature = "client-certificate")]
fn verifier() -> V {
    static KEY: Digest = [7; 32];
    let identity = Identity {
        certificates: stored(),
        key: &KEY,
    };
    Identified::new(trusted(), identity)
}
type B = Buffers<2, 512, 512, 768, 1536>;
static mut MEMORY: B = B::new();
type Device = Client<X, V, &'static mut B>;
static mut CLIENT: core::mem::MaybeUninit<Device> = core::mem::MaybeUninit::uninit();
static mut FRAME: [u8; 1472] = [0; 1472];
/// Bytes that the caller stored; only their length matters here.
fn stored() -> &'static [u8] {
    unsafe { core::slice::from_raw_parts(x_now() as *const u8, x_now() as usize) }
}

fn begin(client: &mut Device) {
    let resume = cfg!(feature = "resumption").then(|| Resume {
        ticket: stored(),
        age_ms: unsafe { x_now() },
        early: cfg!(feature = "early-data"),
    });
    let config = Config {
        name: b"broker",
        alpn: b"mqtt",
        idle_ms: 30_000,
        max_datagram: 1472,
        token: stored(),
        resume,
    };
    let _ = client.connect(unsafe { x_now() }, &config);
}

/// Calls that an application makes, each behind a bit that is not known.
fn application(client: &mut Device, id: &mut Option<StreamId>, now: u32) {
    if client.is_usable() && id.is_none() {
        *id = client.open().ok();
    }
    if let Some(id) = *id {
        let _ = client.write(id, b"hello");
        if now & 1 != 0 {
            let _ = client.finish(id);
        }
        let n = client.received(id).map_or(0, |(data, _)| {
            unsafe { x_send(data.as_ptr(), data.len()) };
            data.len()
        });
        client.consume(id, n);
    }
    if now & 2 != 0 {
        client.close(now, 0);
    }
    #[cfg(feature = "key-update")]
    if now & 4 != 0 {
        let _ = client.update_keys();
    }
    #[cfg(feature = "migration")]
    if now & 8 != 0 {
        let _ = client.migrate();
    }
    #[cfg(feature = "resumption")]
    if let Some(ticket) = client.ticket() {
        unsafe { x_send(ticket.as_ptr(), ticket.len()) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let frame = unsafe { &mut *(&raw mut FRAME) };
    let memory = unsafe { &mut *(&raw mut MEMORY) };
    let client = unsafe { (*(&raw mut CLIENT)).write(Client::new(X, verifier(), memory)) };
    begin(client);
    let mut id = None;
    loop {
        let now = unsafe { x_now() };
        let n = unsafe { x_net(frame.as_mut_ptr(), frame.len()) };
        if let Some(datagram) = frame.get_mut(..n) {
            client.receive(now, datagram);
        }
        application(client, &mut id, now);
        while client.timeout(now).is_some() || client.error().is_some() {
            let n = client.transmit(now, frame);
            if n == 0 {
                break;
            }
            unsafe { x_send(frame.as_ptr(), n) }
        }
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe { no_panic() }
}
