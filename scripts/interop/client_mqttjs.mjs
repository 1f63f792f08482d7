// MQTT.js (npm) as a client under the scenarios of scenarios.py. INTEROP_MODULES
// names the folder that holds node_modules.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { randomBytes } from 'node:crypto';

const require = createRequire(join(process.env.INTEROP_MODULES, 'here.js'));
const mqtt = require('mqtt');

const SECONDS_MAX = 30;
const BURST_MESSAGES = 500;
const LARGE_BYTES = 200_000;
const SHARED_MESSAGES = 10;

const text = { type: 'string' };
const { values: args } = parseArgs({
  options: { host: { ...text, default: 'localhost' }, port: text, transport: text, version: text, ca: text },
});
const isV5 = args.version === '5';
const random = () => randomBytes(6).toString('hex');
const prefix = `interop/mqttjs/${args.transport}/${args.version}/${random()}`;
const scheme = { tcp: 'mqtt', tls: 'mqtts', ws: 'ws', wss: 'wss' }[args.transport];
const path = scheme.startsWith('ws') ? '/mqtt' : '';

function expect(got, want, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what}: got ${a.slice(0, 120)}, want ${b.slice(0, 120)}`);
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} in ${SECONDS_MAX} s`)), SECONDS_MAX * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A connected client whose messages can be awaited. */
class Client {
  static async open({ id, clean = true, expiry = 0, will } = {}) {
    const self = new Client();
    self.messages = [];
    self.waiting = [];
    self.mqtt = mqtt.connect(`${scheme}://${args.host}:${args.port}${path}`, {
      clientId: id ?? `mqttjs-${random()}`,
      protocolVersion: isV5 ? 5 : 4,
      clean,
      properties: isV5 ? { sessionExpiryInterval: expiry } : undefined,
      will,
      ca: ['tls', 'wss'].includes(args.transport) ? [readFileSync(args.ca)] : undefined,
      reconnectPeriod: 0,
      connectTimeout: SECONDS_MAX * 1000,
    });
    self.mqtt.on('message', (topic, payload, packet) => {
      const message = { topic, payload: payload.toString('latin1'), qos: packet.qos, retain: packet.retain };
      const next = self.waiting.shift();
      if (next) next(message);
      else self.messages.push(message);
    });
    const connack = new Promise((resolve, reject) => {
      self.mqtt.once('connect', resolve);
      self.mqtt.once('error', reject);
    });
    self.sessionPresent = (await within(connack, 'CONNACK')).sessionPresent;
    self.mqtt.on('error', () => {});
    return self;
  }

  async subscribe(topic, qos) {
    const granted = await within(this.mqtt.subscribeAsync(topic, { qos }), 'SUBACK');
    expect(granted.map((g) => g.qos), [qos], 'SUBACK');
    return this;
  }

  async publish(topic, payload, qos, retain = false) {
    await within(this.mqtt.publishAsync(topic, payload, { qos, retain }), 'acknowledgement');
  }

  message() {
    if (this.messages.length > 0) return Promise.resolve(this.messages.shift());
    return within(new Promise((resolve) => this.waiting.push(resolve)), 'message');
  }

  async close() {
    await within(this.mqtt.endAsync(), 'end');
  }

  /** Ends the connection without DISCONNECT. */
  vanish() {
    this.mqtt.stream.destroy();
  }
}

async function using(clients, body) {
  const opened = await Promise.all(clients.map((options) => Client.open(options)));
  try {
    await body(...opened);
  } finally {
    await Promise.all(opened.map((client) => client.close()));
  }
}

const atQos = (qos) => () =>
  using([{}], async (client) => {
    const topic = `${prefix}/qos${qos}`;
    await client.subscribe(topic, qos);
    for (const payload of ['one', '', 'drei \u20ac']) {
      await client.publish(topic, payload, qos);
      const want = { topic, payload: Buffer.from(payload).toString('latin1'), qos, retain: false };
      expect(await client.message(), want, 'message');
    }
  });

const scenarios = {
  qos0: atQos(0),
  qos1: atQos(1),
  qos2: atQos(2),

  wildcard: () =>
    using([{}], async (client) => {
      await client.subscribe(`${prefix}/w/+/c/#`, 1);
      for (const tail of ['a/x', 'a/c', 'b/c/d/e', 'c']) await client.publish(`${prefix}/w/${tail}`, tail, 1);
      // No order between topics is promised.
      const got = [(await client.message()).payload, (await client.message()).payload];
      expect(got.sort(), ['a/c', 'b/c/d/e'], 'matches');
      expect(client.messages.length, 0, 'surplus');
    }),

  retained: () =>
    using([{}], async (publisher) => {
      const topic = `${prefix}/retained`;
      await publisher.publish(topic, 'kept', 1, true);
      await using([{}], async (client) => {
        await client.subscribe(topic, 1);
        const { payload, retain } = await client.message();
        expect([payload, retain], ['kept', true], 'retained');
      });
      await publisher.publish(topic, '', 1, true);
      await publisher.publish(`${topic}/end`, 'end', 1, true);
      await using([{}], async (client) => {
        await client.subscribe(`${topic}/#`, 1);
        expect((await client.message()).payload, 'end', 'cleared');
      });
      await publisher.publish(`${topic}/end`, '', 1, true);
    }),

  will: () =>
    using([{}], async (watcher) => {
      const topic = `${prefix}/will`;
      await watcher.subscribe(topic, 1);
      const will = (payload) => ({ will: { topic, payload: Buffer.from(payload), qos: 1, retain: false } });
      await (await Client.open(will('clean'))).close();
      (await Client.open(will('gone'))).vanish();
      expect((await watcher.message()).payload, 'gone', 'will');
    }),

  shared: () =>
    using([{}, {}, {}], async (one, two, publisher) => {
      const topic = `${prefix}/shared`;
      for (const member of [one, two]) await member.subscribe(`$share/group/${topic}`, 1);
      for (let n = 0; n < SHARED_MESSAGES; n++) await publisher.publish(topic, String(n), 1);
      // A marker that both get ends the wait for surplus messages.
      for (const member of [one, two]) await member.subscribe(`${topic}/end`, 1);
      await publisher.publish(`${topic}/end`, 'end', 1);
      const shares = [];
      for (const member of [one, two]) {
        const share = [];
        for (let m = await member.message(); m.payload !== 'end'; m = await member.message()) share.push(+m.payload);
        shares.push(share);
      }
      const all = shares.flat().sort((a, b) => a - b);
      expect(all, [...Array(SHARED_MESSAGES).keys()], 'each once');
      expect(shares.every((s) => s.length > 0), true, 'both take part');
    }),

  persistent: async () => {
    const topic = `${prefix}/persistent`;
    const session = { id: `mqttjs-keep-${random()}`, clean: false, expiry: 300 };
    await using([session], async (client) => {
      expect(client.sessionPresent, false, 'session present at first');
      await client.subscribe(topic, 1);
    });
    await using([{}], async (publisher) => {
      for (let n = 0; n < 3; n++) await publisher.publish(topic, String(n), 1);
    });
    await using([session], async (client) => {
      expect(client.sessionPresent, true, 'session present');
      const got = [];
      for (let n = 0; n < 3; n++) got.push((await client.message()).payload);
      expect(got, ['0', '1', '2'], 'queued');
    });
    await (await Client.open({ ...session, clean: true, expiry: 0 })).close();
  },

  large: () =>
    using([{}], async (client) => {
      const topic = `${prefix}/large`;
      const payload = Buffer.alloc(LARGE_BYTES, Buffer.from([...Array(256).keys()]));
      await client.subscribe(topic, 1);
      await client.publish(topic, payload, 1);
      expect((await client.message()).payload === payload.toString('latin1'), true, 'payload survives');
    }),

  burst: () =>
    using([{}], async (client) => {
      const topic = `${prefix}/burst`;
      await client.subscribe(topic, 1);
      const numbers = [...Array(BURST_MESSAGES).keys()];
      await Promise.all(numbers.map((n) => client.publish(topic, String(n), 1)));
      const got = [];
      for (const _ of numbers) got.push(+(await client.message()).payload);
      expect(got, numbers, 'in order');
    }),
};

for (const [name, scenario] of Object.entries(scenarios)) {
  try {
    await scenario();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`not ok ${name}: ${String(error.message ?? error).replaceAll('\n', ' ')}`);
  }
}
process.exit(0);
