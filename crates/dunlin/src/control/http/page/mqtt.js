// MQTT 5.0 over WebSocket, as far as someone who looks on needs it: CONNECT, SUBSCRIBE
// with QoS 0, PUBLISH from the broker, PINGREQ.

// Largest packet taken, announced to the broker; larger messages are not sent to us.
export const PACKET_BYTES_MAX = 262_144;

const KEEP_ALIVE_SECONDS = 30;

// Time for CONNACK and SUBACK.
const ANSWER_MS_MAX = 10_000;

const utf8 = new TextDecoder('utf-8', { fatal: true });
const encoder = new TextEncoder();

const REASONS = {
  0x86: 'wrong user name or password', 0x87: 'not authorized', 0x88: 'server unavailable', 0x89: 'server busy',
  0x8a: 'banned', 0x8b: 'server shutting down', 0x8f: 'filter not valid', 0x97: 'quota exceeded',
  0x98: 'ended by an operator', 0x9c: 'use another server', 0x9d: 'server moved', 0x9f: 'too many connections',
};

const reasonOf = (code) => REASONS[code] ?? `reason 0x${code.toString(16)}`;

const u16 = (n) => [n >> 8, n & 0xff];
const u32 = (n) => [n >>> 24, (n >>> 16) & 0xff, (n >>> 8) & 0xff, n & 0xff];

function text(value) {
  const data = encoder.encode(value);
  if (data.length > 0xffff) throw new Error('a text is too long for MQTT');
  return [...u16(data.length), ...data];
}

function length(n) {
  const out = [];
  let left = n;
  do {
    out.push((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    left >>>= 7;
  } while (left > 0);
  return out;
}

const packet = (first, body) => Uint8Array.from([first, ...length(body.length), ...body]);

// CONNECT with Clean Start, and Maximum Packet Size as its only property.
export function connect({ clientId, user, password }) {
  const flags = 0x02 | (user ? 0x80 : 0) | (password ? 0x40 : 0);
  const properties = [0x27, ...u32(PACKET_BYTES_MAX)];
  return packet(0x10, [
    ...text('MQTT'), 5, flags, ...u16(KEEP_ALIVE_SECONDS), properties.length, ...properties,
    ...text(clientId), ...(user ? text(user) : []), ...(password ? text(password) : []),
  ]);
}

// SUBSCRIBE to one filter with QoS 0, Retain As Published.
export const subscribe = (id, filter) => packet(0x82, [...u16(id), 0, ...text(filter), 0x08]);

export const PINGREQ = Uint8Array.of(0xc0, 0);
export const DISCONNECT = Uint8Array.of(0xe0, 0);

// Reads what it was given once; reading past the end throws.
class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  byte() {
    if (this.at >= this.data.length) throw new Error('a packet ends too early');
    return this.data[this.at++];
  }

  u16() {
    return (this.byte() << 8) | this.byte();
  }

  take(n) {
    if (this.at + n > this.data.length) throw new Error('a packet ends too early');
    this.at += n;
    return this.data.subarray(this.at - n, this.at);
  }

  varint() {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new Error('a length is malformed');
  }

  text() {
    return utf8.decode(this.take(this.u16()));
  }

  rest() {
    return this.take(this.data.length - this.at);
  }

  // Properties by their numbers; of those that repeat, the last.
  properties() {
    const end = this.varint() + this.at;
    const found = {};
    while (this.at < end) {
      const id = this.varint();
      found[id] = this.property(id);
    }
    if (this.at !== end) throw new Error('properties end too late');
    return found;
  }

  property(id) {
    if ([0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2a].includes(id)) return this.byte();
    if ([0x13, 0x21, 0x22, 0x23].includes(id)) return this.u16();
    if ([0x02, 0x11, 0x18, 0x27].includes(id)) return this.take(4);
    if (id === 0x0b) return this.varint();
    if ([0x09, 0x16].includes(id)) return this.take(this.u16());
    if ([0x03, 0x08, 0x12, 0x15, 0x1a, 0x1c, 0x1f].includes(id)) return this.text();
    if (id === 0x26) return [this.text(), this.text()];
    throw new Error(`a property is not known: ${id}`);
  }
}

// Cuts bytes into packets, and those into values.
export class Decoder {
  constructor() {
    this.kept = new Uint8Array(0);
  }

  // Packets that are whole with these bytes.
  feed(data) {
    let all = data;
    if (this.kept.length > 0) {
      all = new Uint8Array(this.kept.length + data.length);
      all.set(this.kept);
      all.set(data, this.kept.length);
    }
    const packets = [];
    let from = 0;
    for (;;) {
      const size = sizeOf(all, from);
      if (size === null || from + size.head + size.body > all.length) break;
      const body = from + size.head;
      packets.push(decode(all[from], all.subarray(body, body + size.body)));
      from = body + size.body;
    }
    this.kept = all.slice(from);
    return packets;
  }
}

function sizeOf(data, from) {
  let body = 0;
  for (let at = 1; at <= 4; at += 1) {
    const byte = data[from + at];
    if (byte === undefined) return null;
    body |= (byte & 0x7f) << (7 * (at - 1));
    if (byte < 0x80) {
      if (body > PACKET_BYTES_MAX) throw new Error('a packet is too large');
      return { head: at + 1, body };
    }
  }
  throw new Error('a length is malformed');
}

function decode(first, body) {
  const reader = new Reader(body);
  switch (first >> 4) {
    case 2: {
      reader.byte();
      const code = reader.byte();
      const properties = reader.properties();
      return { kind: 'connack', code, why: properties[0x1f] ?? reasonOf(code), keepAlive: properties[0x13] };
    }
    case 3: {
      const topic = reader.text();
      const qos = (first >> 1) & 3;
      if (qos > 0) reader.u16();
      const properties = reader.properties();
      return { kind: 'publish', topic, qos, retain: (first & 1) === 1, type: properties[0x03], payload: reader.rest().slice() };
    }
    case 9: {
      reader.u16();
      const properties = reader.properties();
      const code = reader.byte();
      return { kind: 'suback', code, why: properties[0x1f] ?? reasonOf(code) };
    }
    case 13:
      return { kind: 'pingresp' };
    case 14: {
      const code = body.length > 0 ? reader.byte() : 0;
      const properties = body.length > 1 ? reader.properties() : {};
      return { kind: 'disconnect', code, why: properties[0x1f] ?? reasonOf(code) };
    }
    default:
      throw new Error(`a packet of type ${first >> 4} is not expected`);
  }
}

function clientId() {
  const random = crypto.getRandomValues(new Uint8Array(6));
  return `dunlin-page-${[...random].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

// A subscription to one filter. `on.ready()`, `on.message(packet)`, `on.end(why)`; `why`
// is null when it was closed here.
export class Watch {
  constructor({ url, filter, user, password }, on) {
    this.on = on;
    this.filter = filter;
    this.decoder = new Decoder();
    this.over = false;
    this.socket = new WebSocket(url, ['mqtt']);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => this.socket.send(connect({ clientId: clientId(), user, password }));
    this.socket.onmessage = ({ data }) => this.take(data);
    this.socket.onclose = () => this.end('The connection is closed.');
    this.timer = setTimeout(() => this.end('No answer.'), ANSWER_MS_MAX);
  }

  take(data) {
    if (this.over) return;
    try {
      if (!(data instanceof ArrayBuffer)) throw new Error('text instead of packets');
      this.decoder.feed(new Uint8Array(data)).forEach((each) => this.handle(each));
    } catch (error) {
      this.end(`What arrived is no MQTT: ${error.message}.`);
    }
  }

  handle(each) {
    if (this.over) return;
    if (each.kind === 'publish') {
      this.on.message(each);
    } else if (each.kind === 'connack') {
      if (each.code >= 0x80) {
        this.end(`The broker refuses: ${each.why}.`);
        return;
      }
      const seconds = Math.min(each.keepAlive || KEEP_ALIVE_SECONDS, KEEP_ALIVE_SECONDS);
      this.pings = setInterval(() => this.socket.send(PINGREQ), seconds * 900);
      this.socket.send(subscribe(1, this.filter));
    } else if (each.kind === 'suback') {
      clearTimeout(this.timer);
      if (each.code >= 0x80) this.end(`The broker refuses the filter: ${each.why}.`);
      else this.on.ready();
    } else if (each.kind === 'disconnect') {
      this.end(`The broker ended the connection: ${each.why}.`);
    }
  }

  end(why) {
    if (this.over) return;
    this.over = true;
    clearTimeout(this.timer);
    clearInterval(this.pings);
    this.socket.close();
    this.on.end(why);
  }

  // Ends it from here.
  close() {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(DISCONNECT);
    this.end(null);
  }
}
