// A list of items on BullMQ: a flow, whose parent is the join. Printed as by bench/peers/items.py.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.BENCH_MODULES}/`);
const { FlowProducer, Worker } = require("bullmq");

const [, , , runs, items] = process.argv.map(Number);
const connection = { url: process.env.BENCH_REDIS };
const now = () => Number(process.hrtime.bigint()) / 1e9;

const joins = [];
let allDone;
const done = new Promise((resolve) => (allDone = resolve));
const worker = new Worker("items", async () => now(), { connection, concurrency: 100 });
const merger = new Worker(
  "joins",
  async (job) => now() - Math.max(...Object.values(await job.getChildrenValues())),
  { connection, concurrency: 100 },
);
merger.on("completed", (_, result) => {
  joins.push(result);
  if (joins.length === runs) allDone();
});
const flows = new FlowProducer({ connection });
await Promise.all([worker.waitUntilReady(), merger.waitUntilReady(), flows.waitUntilReady()]);

const began = now();
for (let run = 0; run < runs; run += 1) {
  const children = Array.from({ length: items }, (_, n) => ({
    name: "one",
    queueName: "items",
    data: n,
  }));
  await flows.add({ name: "merge", queueName: "joins", children });
}
await done;
console.log(JSON.stringify({ took: now() - began, joins }));
process.exit(0);
