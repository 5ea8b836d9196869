'use strict';
// The Node driver (ali-ons). Command line and output: ../../drivers.py.

const readline = require('readline');
const { Producer, Consumer, Message } = require('ali-ons');

const [ command, nameSrv, topic, group, deadline, accessKey, secretKey ] = process.argv.slice(2);
setTimeout(() => process.exit(3), Number(deadline) * 1000).unref();

// The HTTP client is required, but not used if a name server is given. Without keys, requests are not signed.
const connection = { nameSrv, httpclient: {}, accessKey, secretKey };
const lines = readline.createInterface({ input: process.stdin });
const emit = event => process.stdout.write(JSON.stringify(event) + '\n');
const attempts = {};
const logError = error => process.stderr.write(`${error.stack}\n`);

async function produce() {
  const producer = new Producer({ ...connection, producerGroup: group });
  producer.on('error', logError);
  await producer.ready();
  emit({ event: 'started' });
  for await (const line of lines) {
    const order = JSON.parse(line);
    try {
      const result = await producer.send(message(order));
      emit({ event: 'sent', n: order.n, status: result.sendStatus, id: result.msgId,
        queue: Number(result.messageQueue.queueId), offset: Number(result.queueOffset) });
    } catch (error) {
      emit({ event: 'failed', n: order.n, error: error.message });
    }
  }
  await producer.close();
}

async function consume() {
  const options = { retry: { maxReconsumeTimes: 1 }, broadcast: { isBroadcast: true } }[command] || {};
  const consumer = new Consumer({ ...connection, consumerGroup: group, ...options });
  consumer.on('error', logError);
  consumer.subscribe(topic, '*', async message => {
    received(message);
    const { n, fails } = message.properties;
    attempts[n] = (attempts[n] || 0) + 1;
    if (attempts[n] <= Number(fails || 0)) throw new Error(`${n} fails`);
  });
  await consumer.ready();
  emit({ event: 'started' });
  for await (const line of lines); // until the input ends
  await consumer.close();
}

function message(order) {
  const message = new Message(topic, order.tags, Buffer.from(order.body, 'base64'));
  message.keys = order.keys;
  Object.assign(message.properties, order.properties);
  if (order.delay_level) message.delayTimeLevel = order.delay_level;
  return message;
}

function received(message) {
  emit({ event: 'received', topic: message.topic, queue: message.queueId, offset: message.queueOffset,
    id: message.msgId, tags: message.tags, keys: message.keys, properties: message.properties,
    body: Buffer.from(message.body || '').toString('base64') });
}

// With wrong credentials, a consumer of this client fails to start.
(command === 'produce' ? produce() : consume()).catch(error => {
  logError(error);
  emit({ event: 'failed', n: command, error: error.message });
}).then(() => {
  process.stdout.write('{"event":"left"}\n', () => process.exit(0));
});
