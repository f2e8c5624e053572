// The official Node client as it comes: send|simple|push|sql|fail|transact|die|answer|recall ENDPOINT TOPIC GROUP
// COUNT; a JSON object a line. What each role does: see python_client.py.
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [role, endpoints, topic, consumerGroup, text] = process.argv.slice(2);
const count = Number(text);
const LIMIT_MS = 90_000;
const COMMIT = 1;
const SQL = 2;
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };

const say = (line) => console.log(JSON.stringify(line));
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const within = (promise) => Promise.race([promise, rest(LIMIT_MS)]);
const received = (message) => say({
  body: message.body.toString(), keys: message.keys.join(' '), tag: message.tag, attempt: message.deliveryAttempt,
});

async function producing(checker) {
  const producer = new Producer({ endpoints, logger, topics: [topic], checker });
  await producer.startup();
  return producer;
}

function checking() {
  const found = {};
  found.asked = new Promise((resolve) => {
    found.checker = {
      async check(message) {
        say({ asked: message.body.toString() });
        resolve();
        return COMMIT;
      },
    };
  });
  return found;
}

async function begin(producer, body) {
  const transaction = producer.beginTransaction();
  say({ id: (await producer.send({ topic, body: Buffer.from(body) }, transaction)).messageId });
  return transaction;
}

async function simple(wanted = '*') {
  const consumer = new SimpleConsumer({
    endpoints, logger, consumerGroup, subscriptions: new Map([[topic, wanted]]), awaitDuration: 3000,
  });
  await consumer.startup();
  const end = Date.now() + LIMIT_MS;
  let seen = 0;
  while (seen < count && Date.now() < end) {
    for (const message of await consumer.receive(32)) {
      received(message);
      await consumer.ack(message);
      seen += 1;
    }
  }
  await consumer.shutdown();
}

async function push(result, restMs) {
  let seen = 0;
  let done;
  const all = new Promise((resolve) => { done = resolve; });
  const messageListener = {
    async consume(message) {
      received(message);
      seen += 1;
      if (seen >= count) done();
      return result;
    },
  };
  const consumer = new PushConsumer({
    endpoints, logger, namespace: '', consumerGroup, subscriptions: new Map([[topic, '*']]), messageListener,
  });
  await consumer.startup();
  await within(all);
  await rest(restMs);
  await consumer.shutdown();
}

const roles = {
  async send() {
    const producer = await producing();
    for (let number = 0; number < count; number += 1) {
      const properties = new Map([['number', String(number)]]);
      const body = Buffer.from(`body-${number}`);
      say({ id: (await producer.send({ topic, body, keys: [`key-${number}`], tag: 'tag', properties })).messageId });
    }
    await producer.shutdown();
  },
  simple: () => simple(),
  sql: () => simple(new FilterExpression('number >= 10', SQL)),
  push: () => push(ConsumeResult.SUCCESS, 1000),
  fail: () => push(ConsumeResult.FAILURE, 15_000),
  async transact() {
    const { checker, asked } = checking();
    const producer = await producing(checker);
    await (await begin(producer, 'committed')).commit();
    await (await begin(producer, 'rolled back')).rollback();
    await begin(producer, 'asked about');
    await within(asked);
    await rest(1000);
    await producer.shutdown();
  },
  async die() {
    await begin(await producing(checking().checker), 'left behind');
    process.exit(0);
  },
  async answer() {
    const { checker, asked } = checking();
    const producer = await producing(checker);
    await within(asked);
    await rest(1000);
    await producer.shutdown();
  },
  async recall() {
    const producer = await producing();
    const delayed = async (body) => (await producer.send({ topic, delay: 8000, body: Buffer.from(body) })).recallHandle;
    const handle = await delayed('recalled');
    await delayed('kept');
    say({ recalled: (await producer.recallMessage(topic, handle)).messageId });
    try {
      await producer.recallMessage(topic, handle);
    } catch (error) {
      say({ refused: error.message });
    }
    await producer.shutdown();
  },
};

roles[role]().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
