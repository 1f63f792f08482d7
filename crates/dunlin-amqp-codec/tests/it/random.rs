//! Random values: what is built is what is read, and the shortest form does not
//! change by being written again.

use dunlin_amqp_codec::*;

/// Xorshift, enough to choose values.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// A number that is often small and often at the end of a width.
    fn number(&mut self) -> u64 {
        let bits = [0, 1, 7, 8, 9, 15, 16, 31, 32, 63][self.below(10)];
        (1u64 << bits)
            .wrapping_add(self.below(3) as u64)
            .wrapping_sub(2)
    }

    fn text(&mut self) -> &'static str {
        let len = [0, 1, 5, 254, 255, 256, 300][self.below(7)];
        "x".repeat(len).leak()
    }

    /// A value of the type `kind`.
    fn value(&mut self, kind: usize, depth: usize) -> Value<'static> {
        let number = self.number();
        match kind {
            0 => Value::Null,
            1 => Value::Bool(number & 1 == 1),
            2 => Value::Ubyte(number as u8),
            3 => Value::Ushort(number as u16),
            4 => Value::Uint(number as u32),
            5 => Value::Ulong(number),
            6 => Value::Byte(number as i8),
            7 => Value::Short(number as i16),
            8 => Value::Int(number as i32),
            9 => Value::Long(number as i64),
            10 => Value::Float(number as f32),
            11 => Value::Double(number as f64),
            12 => Value::Decimal32((number as u32).to_be_bytes()),
            13 => Value::Decimal64(number.to_be_bytes()),
            14 => Value::Decimal128(u128::from(number).to_be_bytes()),
            15 => Value::Char(char::from(number as u8)),
            16 => Value::Timestamp(Timestamp(number as i64)),
            17 => Value::Uuid(Uuid(u128::from(number).to_be_bytes())),
            18 => Value::Binary(self.text().as_bytes()),
            19 => Value::String(self.text()),
            20 => Value::Symbol(Symbol::new(self.text()).unwrap()),
            21 => Value::List(List::new(self.values(depth))),
            22 => Value::Map(Map::new(self.entries(depth))),
            23 => Value::Array(Array::new(self.elements(depth))),
            _ => {
                let value = Box::leak(Box::new(self.any(depth - 1)));
                Value::Described(Described::new(Descriptor::Code(number), value))
            }
        }
    }

    fn any(&mut self, depth: usize) -> Value<'static> {
        let kinds = if depth == 0 { 21 } else { 25 };
        let kind = self.below(kinds);
        self.value(kind, depth)
    }

    fn len(&mut self) -> usize {
        [0, 1, 2, 3, 5, 100, 300][self.below(7)]
    }

    fn values(&mut self, depth: usize) -> &'static [Value<'static>] {
        let len = self.len().min(if depth > 1 { 3 } else { 300 });
        (0..len)
            .map(|_| self.any(depth - 1))
            .collect::<Vec<_>>()
            .leak()
    }

    fn entries(&mut self, depth: usize) -> &'static [(Value<'static>, Value<'static>)] {
        let len = self.len().min(3);
        let entries: Vec<_> = (0..len)
            .map(|_| (self.any(0), self.any(depth - 1)))
            .collect();
        entries.leak()
    }

    /// Values of one type.
    fn elements(&mut self, depth: usize) -> &'static [Value<'static>] {
        let kind = self.below(if depth > 1 { 24 } else { 21 });
        let len = self.len().min(if kind == 0 { 256 } else { 300 });
        let described = self.below(3) == 0;
        let elements: Vec<_> = (0..len)
            .map(|_| {
                let value = self.value(kind, depth - 1);
                if described {
                    let value = Box::leak(Box::new(value));
                    Value::Described(Described::new(Descriptor::Code(0x2a), value))
                } else {
                    value
                }
            })
            .collect();
        elements.leak()
    }
}

#[test]
fn what_is_built_is_what_is_read() {
    /// Values to try.
    const VALUES: u64 = 3000;
    for seed in 1..=VALUES {
        let value = Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).any(3);
        let bytes = value
            .to_vec()
            .unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert_eq!(bytes.len(), value.encoded_len(), "{seed}");
        let read = Value::decode(&bytes).unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert_eq!(read, value, "{seed}");
        assert_eq!(read.to_vec().as_ref(), Ok(&bytes), "{seed}");
    }
}
