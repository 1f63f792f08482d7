//! Values as bytes: numbers, texts, lists, and the macros for tables of fields and of
//! variants.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::num::NonZeroU64;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::{ConnId, Instant, QoS, SendBuf, ShardId, StreamId, Text};
use dunlin_store::codec::{Reader, put_blob};
use dunlin_store::{Seq, SessionKey};

use super::limits::{LIST_MAX, LIST_MEMORY_FACTOR_MAX, TEXT_BYTES_MAX};
use super::{DecodeError, NO_VALUE};

/// Where a message is written to.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Something is over a limit.
    pub(super) too_large: bool,
}

impl Writer<'_> {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A number of bytes or elements, at most `max`.
    fn count(&mut self, count: usize, max: usize) {
        self.too_large |= count > max;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.put(&count.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.too_large |= text.len() > TEXT_BYTES_MAX;
        put_blob(self.out, text.as_bytes());
    }

    /// What `write` writes, with its length before it.
    pub(super) fn nested(&mut self, write: impl FnOnce(&mut Self)) {
        const LEN_BYTES: usize = 4;
        let place = self.out.len();
        self.put(&[0; LEN_BYTES]);
        write(self);
        let begin = place.saturating_add(LEN_BYTES);
        let len = u32::try_from(self.out.len().saturating_sub(begin));
        let len = len.unwrap_or(u32::MAX).to_le_bytes();
        if let Some(field) = self.out.get_mut(place..begin) {
            field.copy_from_slice(&len);
        }
    }
}

/// A value that has a form as bytes.
pub(super) trait Wire: Sized {
    /// In a list its length stands before it, so that it may become longer.
    const GROWS: bool = false;

    /// Numbers of its variants.
    const NUMBERS: &'static [u8] = &[];

    /// Appends it.
    fn put(&self, w: &mut Writer<'_>);

    /// Takes it off the front.
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Appends several.
    fn put_all(all: &[Self], w: &mut Writer<'_>) {
        w.count(all.len(), LIST_MAX);
        for one in all {
            match Self::GROWS {
                true => w.nested(|w| one.put(w)),
                false => one.put(w),
            }
        }
    }

    /// Takes several.
    fn take_all(r: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        let count = r.u32()? as usize;
        let bytes = count.saturating_mul(size_of::<Self>());
        let bytes_max = r.rest().len().saturating_mul(LIST_MEMORY_FACTOR_MAX);
        if count > LIST_MAX || bytes > bytes_max {
            return Err(DecodeError::TooLarge);
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(match Self::GROWS {
                true => Self::take(&mut r.nested()?)?,
                false => Self::take(r)?,
            });
        }
        Ok(all)
    }
}

/// Values made of others, in this order, which never get one more.
macro_rules! fixed {
    ($($name:path { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::between::codec::wire::Wire for $name {
            fn put(&self, w: &mut $crate::between::codec::wire::Writer<'_>) {
                let Self { $($field),+ } = self;
                $($field.put(w);)+
            }

            fn take(
                r: &mut dunlin_store::codec::Reader<'_>,
            ) -> Result<Self, $crate::between::codec::DecodeError> {
                Ok(Self { $($field: $crate::between::codec::wire::Wire::take(r)?),+ })
            }
        }

        #[cfg(test)]
        impl $crate::between::codec::tests::any::Any for $name {
            fn any(g: &mut $crate::between::codec::tests::any::Gen) -> Self {
                Self { $($field: g.any()),+ }
            }
        }
    )+};
}

/// Values made of others, in this order. Their length stands before them: a field that a
/// later version adds at the end is not read by this one.
macro_rules! growing {
    ($($name:path { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::between::codec::wire::Wire for $name {
            fn put(&self, w: &mut $crate::between::codec::wire::Writer<'_>) {
                let Self { $($field),+ } = self;
                w.nested(|w| { $($field.put(w);)+ });
            }

            fn take(
                r: &mut dunlin_store::codec::Reader<'_>,
            ) -> Result<Self, $crate::between::codec::DecodeError> {
                let r = &mut r.nested()?;
                Ok(Self { $($field: $crate::between::codec::wire::Wire::take(r)?),+ })
            }
        }

        #[cfg(test)]
        impl $crate::between::codec::tests::any::Any for $name {
            fn any(g: &mut $crate::between::codec::tests::any::Gen) -> Self {
                Self { $($field: g.any()),+ }
            }
        }
    )+};
}

/// One of several variants: its number, then its fields in this order.
macro_rules! variants {
    ($($name:path { $(
        $number:literal = $variant:ident
            $(($($value:ident),+ $(,)?))?
            $({ $($field:ident),+ $(,)? })?,
    )+ })+) => {$(
        impl $crate::between::codec::wire::Wire for $name {
            const GROWS: bool = true;
            const NUMBERS: &'static [u8] = &[$($number),+];

            fn put(&self, w: &mut $crate::between::codec::wire::Writer<'_>) {
                match self {$(
                    Self::$variant $(($($value),+))? $({ $($field),+ })? => {
                        w.put(&[$number]);
                        $($($value.put(w);)+)?
                        $($($field.put(w);)+)?
                    }
                )+}
            }

            fn take(
                r: &mut dunlin_store::codec::Reader<'_>,
            ) -> Result<Self, $crate::between::codec::DecodeError> {
                Ok(match r.u8()? {
                    $($number => Self::$variant
                        $(($($crate::between::codec::wire::next!($value, r)),+))?
                        $({ $($field: $crate::between::codec::wire::Wire::take(r)?),+ })?,)+
                    _ => return Err($crate::between::codec::DecodeError::Unknown),
                })
            }
        }

        #[cfg(test)]
        impl $crate::between::codec::tests::any::Any for $name {
            fn any(g: &mut $crate::between::codec::tests::any::Gen) -> Self {
                match g.one_of(<Self as $crate::between::codec::wire::Wire>::NUMBERS) {
                    $($number => Self::$variant
                        $(($($crate::between::codec::wire::any!($value, g)),+))?
                        $({ $($field: g.any()),+ })?,)+
                    _ => unreachable!("no number of a variant"),
                }
            }
        }
    )+};
}

/// The next value, whose name is for reading only.
macro_rules! next {
    ($value:ident, $r:ident) => {
        $crate::between::codec::wire::Wire::take($r)?
    };
}

/// Any next value, for tests.
#[cfg(test)]
macro_rules! any {
    ($value:ident, $g:ident) => {
        $g.any()
    };
}

#[cfg(test)]
pub(super) use any;
pub(super) use {fixed, growing, next, variants};

/// Numbers of a fixed size, little endian.
macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Wire for $number {
            fn put(&self, w: &mut Writer<'_>) {
                w.put(&self.to_le_bytes());
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_le_bytes(r.array()?))
            }
        }
    )+};
}

numbers!(u16, u32, u64, i32, i64);

impl Wire for u8 {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(&[*self]);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.u8()?)
    }

    fn put_all(all: &[Self], w: &mut Writer<'_>) {
        put_blob(w.out, all);
    }

    fn take_all(r: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        Ok(r.blob()?.to_vec())
    }
}

impl Wire for bool {
    fn put(&self, w: &mut Writer<'_>) {
        u8::from(*self).put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NO_VALUE),
        }
    }
}

/// Places in tables and sums of bytes, of eight bytes everywhere.
impl Wire for usize {
    fn put(&self, w: &mut Writer<'_>) {
        (*self as u64).put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::try_from(r.u64()?).map_err(|_| NO_VALUE)
    }
}

impl Wire for NonZeroU64 {
    fn put(&self, w: &mut Writer<'_>) {
        self.get().put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::new(r.u64()?).ok_or(NO_VALUE)
    }
}

/// Ids that are a number.
macro_rules! ids {
    ($($id:ident),+) => {$(
        impl Wire for $id {
            fn put(&self, w: &mut Writer<'_>) {
                self.0.put(w);
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Wire::take(r).map(Self)
            }
        }
    )+};
}

ids!(ShardId, StreamId, SessionKey, Seq);

impl Wire for ConnId {
    fn put(&self, w: &mut Writer<'_>) {
        self.number().put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from_number(r.u64()?))
    }
}

impl Wire for QoS {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(&[*self as u8]);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_u8(r.u8()?).ok_or(NO_VALUE)
    }
}

/// By the clock of who writes; read as one by the clock of who reads.
impl Wire for Instant {
    fn put(&self, w: &mut Writer<'_>) {
        self.as_micros().put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.instant()?)
    }
}

impl Wire for Duration {
    fn put(&self, w: &mut Writer<'_>) {
        self.as_secs().put(w);
        self.subsec_nanos().put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (secs, nanos) = (r.u64()?, r.u32()?);
        match nanos < 1_000_000_000 {
            true => Ok(Self::new(secs, nanos)),
            false => Err(NO_VALUE),
        }
    }
}

impl Wire for Text {
    fn put(&self, w: &mut Writer<'_>) {
        w.text(self);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let text = r.text()?;
        match text.len() > TEXT_BYTES_MAX {
            true => Err(DecodeError::TooLarge),
            false => Ok(text),
        }
    }
}

impl Wire for Arc<str> {
    fn put(&self, w: &mut Writer<'_>) {
        w.text(self);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Text::take(r).map(|text| Self::from(text.as_str()))
    }
}

impl Wire for Bytes {
    fn put(&self, w: &mut Writer<'_>) {
        put_blob(w.out, self);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.bytes()?)
    }
}

/// Bytes that have one owner or several.
macro_rules! blobs {
    ($($blob:ty),+) => {$(
        impl Wire for $blob {
            fn put(&self, w: &mut Writer<'_>) {
                put_blob(w.out, self);
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(r.blob()?.into())
            }
        }
    )+};
}

blobs!(Box<[u8]>, Arc<[u8]>);

impl Wire for SendBuf {
    fn put(&self, w: &mut Writer<'_>) {
        w.nested(|w| self.slices().for_each(|part| w.put(part)));
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut all = Self::new();
        all.put_bytes(&r.bytes()?);
        Ok(all)
    }
}

impl Wire for IpAddr {
    fn put(&self, w: &mut Writer<'_>) {
        match self {
            Self::V4(ip) => {
                w.put(&[4]);
                w.put(&ip.octets());
            }
            Self::V6(ip) => {
                w.put(&[6]);
                w.put(&ip.octets());
            }
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            4 => Ok(r.array::<4>()?.into()),
            6 => Ok(r.array::<16>()?.into()),
            _ => Err(NO_VALUE),
        }
    }
}

impl Wire for SocketAddr {
    fn put(&self, w: &mut Writer<'_>) {
        self.ip().put(w);
        self.port().put(w);
        if let Self::V6(addr) = self {
            addr.flowinfo().put(w);
            // The user of a Unix socket.
            addr.scope_id().put(w);
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (ip, port) = (IpAddr::take(r)?, r.u16()?);
        Ok(match ip {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, r.u32()?, r.u32()?).into(),
        })
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, w: &mut Writer<'_>) {
        self.is_some().put(w);
        if let Some(value) = self {
            value.put(w);
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match bool::take(r)? {
            true => T::take(r).map(Some),
            false => Ok(None),
        }
    }
}

/// Values behind a pointer; who shared one with others has its own after the crossing.
macro_rules! pointers {
    ($($pointer:ident),+) => {$(
        impl<T: Wire> Wire for $pointer<T> {
            fn put(&self, w: &mut Writer<'_>) {
                T::put(self, w);
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                T::take(r).map(Self::new)
            }
        }
    )+};
}

pointers!(Box, Arc);

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, w: &mut Writer<'_>) {
        T::put_all(self, w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::take_all(r)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, w: &mut Writer<'_>) {
        self.0.put(w);
        self.1.put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(r)?, B::take(r)?))
    }
}

impl<A: Wire, B: Wire, C: Wire> Wire for (A, B, C) {
    fn put(&self, w: &mut Writer<'_>) {
        self.0.put(w);
        self.1.put(w);
        self.2.put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(r)?, B::take(r)?, C::take(r)?))
    }
}
