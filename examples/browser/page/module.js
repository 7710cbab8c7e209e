// Calls of the module in its worker. A call that never ends is an error.

/** Milliseconds without an answer after which a step has failed. Kernels compile for seconds on slow devices. */
const PATIENCE = 180_000;

const MEANINGS = {
  lost: "The browser lost the graphics device. Reload the page to start again.",
  memory: "The graphics device is out of memory. Choose fewer elements, or close other pages, and reload.",
  validation: "WebGPU refused an operation.",
  panic: "The module stopped. Reload the page to start again.",
  silent: "The device has not answered for three minutes. Reload the page to start again.",
};

export class Failure extends Error {
  constructor(kind, detail) {
    super(MEANINGS[kind] ?? detail);
    this.detail = MEANINGS[kind] ? detail : "";
  }
}

export class Module {
  #worker = new Worker("worker.js", { type: "module" });
  #waiting = new Map();
  #next = 0;
  #failure;
  #tell;

  /** `tell` hears of a failure that ends the module. */
  constructor(tell) {
    this.#tell = tell;
    this.#worker.addEventListener("message", ({ data }) => this.#hear(data));
    this.#worker.addEventListener("error", (event) => this.#fail("panic", event.message ?? "the worker did not load"));
  }

  call(name, ...args) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#fail("silent", name), PATIENCE);
      this.#waiting.set(id, { resolve, reject, timer });
      this.#worker.postMessage({ id, name, args });
    });
  }

  #hear({ id, result, error, report }) {
    if (report) return this.#fail(report.kind, report.message);
    const call = this.#waiting.get(id);
    if (!call) return;
    clearTimeout(call.timer);
    this.#waiting.delete(id);
    if (error === undefined) call.resolve(result);
    else call.reject(/unreachable|RuntimeError/.test(error) ? this.#fail("panic", error) : new Failure("", error));
  }

  #fail(kind, detail) {
    this.#failure ??= new Failure(kind, detail);
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(this.#failure);
    }
    this.#waiting.clear();
    this.#tell(this.#failure);
    return this.#failure;
  }
}
