// The page: one step at a time, each drawn when it is done.
import { Module } from "./module.js";
import { Tokenizer, batch } from "./tokens.js";

const query = new URLSearchParams(location.search);
const by = (id) => document.getElementById(id);
const BUTTONS = ["run-check", "run-speed", "run-sentences", "local-files"];

let busy = false;
let titles;
let tokenizer;
let hasModel = false;
/** Milliseconds from the adapter to the device: compilation of the module, and the module's own start. */
let ready = 0;

const module = new Module(problem);

function status(text, done) {
  by("status").textContent = text;
  if (done !== undefined) by("progress").value = done;
}

/** Shows what went wrong, and ends the waiting. */
function problem(error) {
  const box = by("problem");
  box.hidden = false;
  box.replaceChildren(element("strong", error.message));
  if (error.detail) box.append(element("small", error.detail));
  status("Stopped");
  report({ problem: `${error.message} ${error.detail ?? ""}` });
}

/** Tells the server that opened this page, if it asked. */
function report(result) {
  if (query.has("report")) fetch("report", { method: "POST", body: JSON.stringify(result) });
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Waits while the tab is in the background: browsers slow it down, and its times would be wrong. */
async function visible(text) {
  while (document.hidden) {
    status(`Paused: this tab is in the background. ${text}`);
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
  status(text);
}

/** Runs one task of the page. Its error is shown. */
async function task(run) {
  if (busy) return;
  busy = true;
  enable();
  by("problem").hidden = true;
  try {
    await run();
    status("Ready", 1);
  } catch (error) {
    problem(error);
  }
  busy = false;
  enable();
}

function enable() {
  for (const id of BUTTONS) by(id).disabled = busy || !titles || (id === "run-sentences" && !hasModel);
}

function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let at = 0;
  for (; count >= 1024 && at < 3; at++) count /= 1024;
  return `${count.toFixed(count < 10 && at ? 1 : 0)} ${units[at]}`;
}

async function open() {
  status("Asking for a device");
  const device = await module.call("open", query.get("limits") === "guaranteed");
  const list = by("properties");
  const show = (entries) =>
    list.replaceChildren(
      ...entries.map(([name, value]) => {
        const pair = element("div");
        pair.append(element("dt", name), element("dd", value));
        return pair;
      }),
    );
  if (device.missing) {
    show([["WebGPU", "missing"]]);
    throw new Error(device.missing);
  }
  show([
    ["adapter", device.name],
    ["compiler", device.compiler],
    ["units per cube", device.units],
    ["shared memory", bytes(device.shared_memory)],
    ["buffers per kernel", device.buffers],
    ["units per plane", device.plane ?? "not fixed"],
    ["largest buffer", bytes(device.largest_buffer)],
    ["f16", device.f16 ? "yes" : "no"],
    ["module and device ready", `${device.start.toFixed(0)} ms`],
  ]);
  ready = device.start;
  titles = await module.call("titles");
}

const GROUPS = { norms: "Norms of the library", strategies: "Kernels by strategy" };

function agreement(part) {
  const cell = element("td");
  if (!part) return cell;
  // JSON has no NaN.
  const known = part.error !== null && part.of_bound !== null;
  cell.append(known ? part.error.toExponential(1) : "not finite");
  if (known) cell.append(element("small", `${(100 * part.of_bound).toFixed(1)} % of the bound`));
  return cell;
}

async function check() {
  const body = by("check-table").tBodies[0];
  body.replaceChildren();
  const counts = { pass: 0, fail: 0, skip: 0 };
  const failures = [];
  let group;
  let first;
  const start = performance.now();
  for (const [at, title] of titles.check.entries()) {
    await visible(`Checking ${title.name}`);
    by("progress").value = at / titles.check.length;
    const result = await module.call("check", at);
    first ??= ready + performance.now() - start;
    if (title.group !== group) {
      group = title.group;
      const row = element("tr", "", { class: "group" });
      row.append(element("th", GROUPS[group], { scope: "rowgroup", colspan: 4 }));
      body.append(row);
    }
    const parts = [result.forward, result.backward];
    const passes = parts.every((part) => part?.pass);
    const word = result.left_out ? "skip" : passes ? "pass" : "fail";
    counts[word]++;
    if (word === "fail") failures.push(`${title.name} ${title.shape}: ${JSON.stringify(parts)}`);
    const row = element("tr", "", { "data-result": word });
    const name = element("th", title.name, { scope: "row" });
    name.append(element("small", title.shape));
    const cells = result.left_out
      ? [element("td", result.left_out, { colspan: 2 })]
      : parts.map(agreement);
    row.append(name, ...cells, element("td", word === "fail" ? "FAIL" : word, { class: word }));
    body.append(row);
  }
  const skipped = counts.skip ? `, ${counts.skip} not possible on this device` : "";
  const summary = `${counts.pass} pass, ${counts.fail} fail${skipped}`;
  by("check-summary").value = `${summary}. First norm ${first.toFixed(0)} ms after the adapter.`;
  // As the table shows it.
  const rows = [...body.querySelectorAll("[data-result]")].map((row) => ({
    name: row.cells[0].firstChild.textContent,
    result: row.lastChild.textContent,
    reason: row.dataset.result === "skip" ? row.cells[1].textContent : null,
  }));
  return { rows, failures, first, total: performance.now() - start };
}

const PASSES = { forward: "forward", training: "forward and backward" };

async function speed() {
  const elements = Number(by("elements").value);
  const list = by("bars");
  list.replaceChildren();
  let perTensor;
  const ratios = [];
  for (const [at, title] of titles.speed.entries()) {
    await visible(`Measuring ${title.name}, ${PASSES[title.pass] ?? title.pass}`);
    by("progress").value = at / titles.speed.length;
    const times = await module.call("measure", at, elements);
    const item = element("li");
    const shape = `[${times.shape.join(", ")}]`;
    if (title.pass === "copy") {
      const size = 4 * times.shape.reduce((a, b) => a * b);
      // Milliseconds for a tensor read or written once. Others are compared by their size.
      perTensor = times.fused / times.traffic / size;
      const rate = (times.traffic * size) / times.fused / 1e6;
      item.append(element("strong", "copy"), element("small", `f32 ${shape}`));
      item.append(bar("copy", "fused", 1, times.fused, `${rate.toFixed(1)} GB/s`));
    } else {
      const size = 4 * times.shape.reduce((a, b) => a * b);
      const least = perTensor * times.traffic * size;
      const ratio = times.burn / times.fused;
      ratios.push(ratio);
      item.append(element("strong", `${title.name}, ${PASSES[title.pass]}`));
      item.append(element("small", `f32 ${shape}, ${ratio.toFixed(2)}x as fast as Burn's`));
      item.append(bar("fused", "fused", least / times.fused, times.fused));
      item.append(bar("Burn", "burn", least / times.burn, times.burn));
    }
    list.append(item);
  }
  ratios.sort((a, b) => a - b);
  const middle = ratios[Math.floor(ratios.length / 2)];
  by("speed-summary").value = `Median ratio ${middle.toFixed(2)}x`;
  return { ratios };
}

function bar(name, kind, share, time, note) {
  const row = element("div", "", { class: "bar" });
  const track = element("div", "", { class: "track" });
  const fill = element("div", "", { class: `fill ${kind}` });
  fill.style.width = `${Math.min(100, 100 * share).toFixed(1)}%`;
  track.append(fill);
  const text = `${time.toFixed(time < 10 ? 2 : 1)} ms, ${note ?? `${(100 * share).toFixed(0)} % of copy`}`;
  row.append(element("span", name), track, element("span", text, { class: "time" }));
  return row;
}

async function load(model, tokens) {
  await visible("Uploading the weights");
  hasModel = false;
  tokenizer = new Tokenizer(await tokens.text());
  await module.call("load", await model.arrayBuffer());
  hasModel = true;
  by("sentences-summary").value = "The model is loaded.";
}

async function compare() {
  const { ids, tokens } = batch([by("first").value, by("second").value].map((text) => tokenizer.encode(text)));
  const dot = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);
  const results = {};
  for (const fused of [true, false]) {
    await visible(fused ? "Embedding with fused norms" : "Embedding with Burn's norms");
    by("progress").value = fused ? 0.2 : 0.6;
    results[fused] = await module.call("embed", ids, tokens, fused);
  }
  const [ours, theirs] = [results[true], results[false]];
  const cosine = dot(...ours.embeddings);
  const agrees = Math.min(...ours.embeddings.map((it, at) => dot(it, theirs.embeddings[at])));
  by("sentences-summary").value =
    `Similarity ${cosine.toFixed(3)}. Fused ${ours.milliseconds.toFixed(1)} ms, Burn's ` +
    `${theirs.milliseconds.toFixed(1)} ms. Cosine between both: ${agrees.toFixed(6)}.`;
  return { cosine, agrees, fused: ours.milliseconds, burn: theirs.milliseconds };
}

by("run-check").addEventListener("click", () => task(check));
by("run-speed").addEventListener("click", () => task(speed));
by("files").addEventListener("change", ({ target: { files } }) =>
  task(async () => {
    const find = (end) => [...files].find((file) => file.name.endsWith(end));
    const [model, tokens] = [find(".safetensors"), find(".json")];
    if (!model || !tokens) throw new Error("Pick both files together: model.safetensors and tokenizer.json.");
    await load(model, tokens);
  }),
);
by("local-files").addEventListener("click", () => task(localFiles));
by("compare").addEventListener("submit", (event) => {
  event.preventDefault();
  if (hasModel) task(compare);
});

async function localFiles() {
  const get = async (name) => {
    const answer = await fetch(`model/${name}`);
    if (!answer.ok) throw new Error(`The server has no ${name}.`);
    return answer.blob();
  };
  await load(await get("model.safetensors"), await get("tokenizer.json"));
}

await task(async () => {
  await open();
  // The server of `cargo xtask web` offers the files of the MiniLM example.
  if (query.has("model")) by("local-files").hidden = false;
  const results = {};
  for (const name of (query.get("run") ?? "check").split(",")) {
    if (name === "check") results.check = await check();
    if (name === "speed") results.speed = await speed();
    if (name === "sentences") {
      await localFiles();
      results.sentences = await compare();
    }
  }
  report(results);
});
