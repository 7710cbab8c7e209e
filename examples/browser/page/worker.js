// The module, away from the page: it stays responsive, and CubeCL can open files of the origin.
import init, * as module from "./browser.js";

let miniLm;

/** What WebGPU lacks here, or the adapter's description. */
async function adapter() {
  if (!navigator.gpu) {
    const why = self.isSecureContext
      ? "This browser has no WebGPU. Chrome and Edge have it from version 113, Safari from 26, Firefox from 141 on Windows."
      : "WebGPU needs a secure page: HTTPS, or localhost.";
    return { missing: why };
  }
  const found = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!found) {
    return { missing: "The browser has WebGPU but found no graphics device for it. It may be blocked in the settings." };
  }
  if (!found.features.has("timestamp-query")) {
    return { missing: "This browser's WebGPU has no timestamp queries, which CubeCL 0.11.3 needs." };
  }
  const { vendor, architecture, device, description } = found.info ?? {};
  const names = [...new Set([vendor, architecture, device, description])].filter((name) => name);
  return { name: names.join(", ") || "unnamed", f16: found.features.has("shader-f16") };
}

const calls = {
  async open(guaranteed) {
    const found = await adapter();
    if (found.missing) return found;
    const start = performance.now();
    await init();
    const report = (kind, message) => postMessage({ report: { kind, message } });
    const properties = JSON.parse(await module.open(guaranteed, report));
    return { ...found, ...properties, start: performance.now() - start };
  },
  titles: () => ({ check: JSON.parse(module.check_cases()), speed: JSON.parse(module.speed_cases()) }),
  check: async (at) => JSON.parse(await module.check(at)),
  measure: async (at, elements) => JSON.parse(await module.measure(at, elements)),
  load(file) {
    miniLm?.free();
    miniLm = undefined;
    miniLm = new module.MiniLm(new Uint8Array(file));
  },
  embed: async (ids, tokens, fused) => JSON.parse(await miniLm.embed(Int32Array.from(ids), tokens, fused)),
};

self.addEventListener("message", async ({ data: { id, name, args } }) => {
  try {
    postMessage({ id, result: await calls[name](...args) });
  } catch (error) {
    postMessage({ id, error: String(error?.message ?? error) });
  }
});
// A panic traps. The promise of its call never settles then.
self.addEventListener("unhandledrejection", ({ reason }) => {
  postMessage({ report: { kind: "panic", message: String(reason?.message ?? reason) } });
});
