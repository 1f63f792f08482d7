// rhea (npm) as an AMQP 1.0 client under the scenarios of scenarios.py, with MQTT.js
// at the other end where a message changes protocol.
// INTEROP_MODULES names the folder that holds node_modules. Without a user name
// it sends the header of AMQP without SASL before it.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { randomBytes } from 'node:crypto';

const require = createRequire(join(process.env.INTEROP_MODULES, 'here.js'));
const rhea = require('rhea');
const mqtt = require('mqtt');

const SECONDS_MAX = 30;
const BURST_MESSAGES = 500;
const LARGE_BYTES = 200_000;
const SMALLEST_FRAME = 512;

const text = { type: 'string' };
const { values: args } = parseArgs({
  options: { host: { ...text, default: 'localhost' }, port: text, transport: text, version: text, ca: text },
});
const random = () => randomBytes(6).toString('hex');
const prefix = `interop/rhea/${args.transport}/${random()}`;

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

/** Resolves at one event, and rejects at another. */
function event(emitter, good, bad) {
  return within(
    new Promise((resolve, reject) => {
      emitter.once(good, resolve);
      emitter.once(bad, (context) => reject(new Error(`${bad}: ${(context.receiver ?? context.sender ?? context.connection)?.error}`)));
    }),
    good,
  );
}

function transport() {
  const host = { host: args.host, port: +args.port };
  switch (args.transport) {
    case 'tls':
      return { ...host, transport: 'tls', ca: [readFileSync(args.ca)], servername: args.host };
    case 'ws':
    case 'wss': {
      const url = `${args.transport}://${args.host}:${args.port}/mqtt`;
      const connect = rhea.websocket_connect(require('ws'));
      const options = args.transport === 'wss' ? { ca: [readFileSync(args.ca)] } : {};
      return { connection_details: connect(url, ['amqp'], options) };
    }
    default:
      return host;
  }
}

/** An open connection. */
async function open(options = {}) {
  const container = rhea.create_container();
  const connection = container.connect({ ...transport(), reconnect: false, ...options });
  // Without a listener, rhea throws where nothing can catch it.
  for (const name of ['connection_error', 'disconnected', 'error']) connection.on(name, () => {});
  await event(connection, 'connection_open', 'disconnected');
  return connection;
}

/** A receiver whose messages can be awaited. */
async function receiver(connection, source, options = {}) {
  const link = connection.open_receiver({ source, credit_window: 0, autoaccept: true, ...options });
  await event(link, 'receiver_open', 'receiver_error');
  const waiting = [];
  const arrived = [];
  link.on('message', ({ message, delivery }) => {
    const next = waiting.shift();
    if (next) next({ message, delivery });
    else arrived.push({ message, delivery });
  });
  link.next = () => {
    if (arrived.length > 0) return Promise.resolve(arrived.shift());
    return within(new Promise((resolve) => waiting.push(resolve)), 'message');
  };
  link.add_credit(1000);
  return link;
}

async function sender(connection, target, options = {}) {
  const link = connection.open_sender({ target, ...options });
  await event(link, 'sendable', 'sender_error');
  return link;
}

async function using(options, body) {
  const connection = await open(options);
  try {
    await body(connection);
  } finally {
    const closed = event(connection, 'connection_close', 'connection_error');
    connection.close();
    await closed;
  }
}

/** With a client of MQTT 5.0 at the same broker. */
async function usingMqtt(body) {
  const url = `mqtt://${args.host}:${process.env.INTEROP_TCP_PORT}`;
  const client = await within(mqtt.connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0 }), 'CONNACK');
  try {
    await body(client);
  } finally {
    await client.endAsync();
  }
}

const through = (options, link) => () =>
  using(options, async (connection) => {
    const topic = `${prefix}/${random()}`;
    const from = await receiver(connection, topic);
    const to = await sender(connection, topic, link);
    for (const body of ['one', '', 'drei \u20ac']) {
      to.send({ body: rhea.message.data_section(Buffer.from(body)) });
      const { message } = await from.next();
      expect(message.body.content.toString(), body, 'body');
    }
  });

const scenarios = {
  unsettled: through({}),
  settled: through({}, { snd_settle_mode: 1 }),
  sasl: async () => {
    const alice = { username: 'alice' };
    for (const options of [{}, { username: 'anonymous' }, { ...alice, password: 'wonderland' }])
      await using(options, async () => {});
    let refused = false;
    await open({ ...alice, password: 'looking-glass' }).catch(() => (refused = true));
    expect(refused, true, 'a wrong password is refused');
  },

  'small-frames': through({ max_frame_size: SMALLEST_FRAME }),

  large: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/large`);
      const body = randomBytes(LARGE_BYTES);
      (await sender(connection, `${prefix}/large`)).send({ body: rhea.message.data_section(body) });
      const { message } = await from.next();
      expect(message.body.content.equals(body), true, 'body');
    }),

  wildcard: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/w/+/c/#`);
      for (const tail of ['a/x', 'a/c', 'b/c/d/e', 'c'])
        (await sender(connection, `${prefix}/w/${tail}`)).send({ body: tail });
      const got = [(await from.next()).message.body, (await from.next()).message.body];
      expect(got.sort(), ['a/c', 'b/c/d/e'], 'matches');
    }),

  relay: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/relay/#`);
      const to = await sender(connection, {});
      for (const tail of ['a', 'b']) {
        to.send({ to: `${prefix}/relay/${tail}`, body: tail });
        expect((await from.next()).message.body, tail, 'body');
      }
    }),

  properties: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/properties`);
      const sent = {
        message_id: 'identifier',
        correlation_id: 7,
        subject: 'greeting',
        reply_to: `${prefix}/reply`,
        content_type: 'text/plain',
        group_id: 'group',
        group_sequence: 4,
        application_properties: { text: 'a', number: 42, flag: true },
        message_annotations: { 'x-opt-mark': 'm' },
        body: { list: [1, 2, null], text: 'b' },
        priority: 7,
        durable: true,
      };
      (await sender(connection, `${prefix}/properties`)).send(sent);
      const { message } = await from.next();
      for (const name of Object.keys(sent)) expect(message[name], sent[name], name);
    }),

  expiry: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/expiry`);
      (await sender(connection, `${prefix}/expiry`)).send({ body: 'x', ttl: 30_000 });
      const { ttl } = (await from.next()).message;
      expect(ttl > 0 && ttl <= 30_000, true, `what is left, ${ttl}`);
    }),

  'to-mqtt': () =>
    using({}, (connection) =>
      usingMqtt(async (client) => {
        const topic = `${prefix}/to-mqtt`;
        const heard = new Promise((resolve) => client.once('message', (_, payload, packet) => resolve({ payload, packet })));
        await client.subscribeAsync(topic, { qos: 2 });
        (await sender(connection, topic)).send({
          body: rhea.message.data_section(Buffer.from('payload')),
          durable: true,
          content_type: 'text/plain',
          reply_to: 'answers',
          // Bytes that are not said to be binary are a UUID to rhea.
          correlation_id: rhea.types.wrap_binary(Buffer.from([1, 2])),
          application_properties: { k: 'v' },
          ttl: 60_000,
        });
        const { payload, packet } = await within(heard, 'PUBLISH');
        expect([payload.toString(), packet.qos, packet.retain], ['payload', 1, false], 'message');
        const { contentType, responseTopic, correlationData, userProperties, messageExpiryInterval } = packet.properties;
        expect([contentType, responseTopic], ['text/plain', 'answers'], 'Content Type, Response Topic');
        expect([...correlationData], [1, 2], 'Correlation Data');
        expect(userProperties.k, 'v', 'User Property');
        expect(messageExpiryInterval > 0 && messageExpiryInterval <= 60, true, 'Message Expiry Interval');
      }),
    ),

  'from-mqtt': () =>
    using({}, (connection) =>
      usingMqtt(async (client) => {
        const topic = `${prefix}/from-mqtt`;
        const from = await receiver(connection, topic);
        await client.publishAsync(topic, 'payload', {
          qos: 1,
          properties: {
            contentType: 'text/plain',
            responseTopic: 'answers',
            correlationData: Buffer.from([1, 2]),
            userProperties: { k: 'v' },
            messageExpiryInterval: 60,
          },
        });
        const { message } = await from.next();
        expect(message.body.content.toString(), 'payload', 'body');
        expect([message.to, message.durable], [topic, true], 'to, durable');
        expect([message.content_type, message.reply_to], ['text/plain', 'answers'], 'content-type, reply-to');
        expect([...message.correlation_id], [1, 2], 'correlation-id');
        expect(message.application_properties, { k: 'v' }, 'application properties');
        expect(message.ttl > 0 && message.ttl <= 60_000, true, 'ttl');
      }),
    ),

  outcomes: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/outcomes`, { autoaccept: false });
      const to = await sender(connection, `${prefix}/outcomes`);
      to.send({ body: 'first' });
      let { message, delivery } = await from.next();
      delivery.release();
      ({ message, delivery } = await from.next());
      expect(message.body, 'first', 'again');
      delivery.reject();
      to.send({ body: 'second' });
      ({ message, delivery } = await from.next());
      expect(message.body, 'second', 'the next');
      delivery.accept();
    }),

  drain: () =>
    using({}, async (connection) => {
      const from = connection.open_receiver({ source: `${prefix}/drain`, credit_window: 0, autoaccept: true });
      await event(from, 'receiver_open', 'receiver_error');
      let got = 0;
      from.on('message', () => (got += 1));
      const to = await sender(connection, `${prefix}/drain`);
      const accepted = within(
        new Promise((resolve) => {
          let left = 4;
          to.on('accepted', () => (left -= 1) || resolve());
        }),
        'acceptance',
      );
      for (let n = 0; n < 4; n++) to.send({ body: n });
      await accepted;
      from.drain = true;
      const drained = event(from, 'receiver_drained', 'receiver_error');
      from.add_credit(10);
      await drained;
      expect(got, 4, 'messages');
    }),

  burst: () =>
    using({}, async (connection) => {
      const from = await receiver(connection, `${prefix}/burst`);
      const to = await sender(connection, `${prefix}/burst`);
      let sent = 0;
      let accepted = 0;
      const all = within(
        new Promise((resolve) => to.on('accepted', () => ++accepted === BURST_MESSAGES && resolve())),
        'acceptance',
      );
      const go = () => {
        while (to.sendable() && sent < BURST_MESSAGES) to.send({ body: sent++ });
      };
      to.on('sendable', go);
      go();
      for (let n = 0; n < BURST_MESSAGES; n++) expect((await from.next()).message.body, n, 'in order');
      await all;
    }),

  refused: () =>
    using({}, async (connection) => {
      for (const target of ['a/#/b', '$SYS/x']) {
        const link = connection.open_sender({ target });
        const { sender: refused } = await event(link, 'sender_error', 'accepted');
        expect(refused.error.condition.startsWith('amqp:'), true, 'condition');
      }
      await sender(connection, `${prefix}/refused`);
    }),

  idle: () =>
    using({ idle_time_out: 1000 }, async (connection) => {
      await new Promise((resolve) => setTimeout(resolve, 4000));
      const from = await receiver(connection, `${prefix}/idle`);
      (await sender(connection, `${prefix}/idle`)).send({ body: 'still here' });
      expect((await from.next()).message.body, 'still here', 'body');
    }),
};

const NAMES = process.env.INTEROP_SCENARIOS.split(' ');

for (const name of NAMES) {
  let line = `ok ${name}`;
  try {
    if (scenarios[name]) await scenarios[name]();
    else line = `skip ${name}: not a scenario of this client`;
  } catch (error) {
    line = `not ok ${name}: ${error.message}`;
  }
  console.log(line.replaceAll('\n', ' '));
}
process.exit(0);
