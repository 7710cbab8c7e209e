"""A worker of `cargo xtask bench` that measures another library.

Usage: bench_peers.py NAME FOLDER

NAME is torch, torch.compile, liger, quack or onnxruntime. Requests come on standard input and replies go to standard output, a line
of JSON each: see crates/cubenorm-problems/src/protocol.rs. FOLDER has the data of a problem, and gets the
result: see benches/src/exchange.rs. Samples and warm-up are those of benches/src/harness.rs.

`out=` of PyTorch's norms is a copy afterwards, so each run allocates its output. The driver sets malloc up
to keep freed memory, which makes an allocation cheap. ONNX Runtime writes into outputs that were allocated
before. It computes on the CPU. So does PyTorch, unless BURN_DEVICE is cuda: then samples by the device's clock
follow those by the host's. Liger-Kernel and QuACK need CUDA.
"""

import gc
import importlib.metadata
import json
import math
import os
import sys
import time
from pathlib import Path

import libraries
import numpy as np

EPSILON = 1e-5
GROUPS = 32
# Seconds of a sample and of a round, and the largest number of samples of a round.
SAMPLE, ROUND, SAMPLES = 0.060, 0.150, 20
# Bytes that the tensors of a sample may take together, and the largest number of runs of a sample. Each run
# has its own tensor, because a single one would stay in the cache.
MEMORY, MOST_RUNS = 512 << 20, 24
# The part of a GPU's own memory, if that is more; the runs of a sample there, for each tensor; and the replays of a
# graph in a sample.
SHARE, AGAIN, REPLAYS = 16, 8, 10
# bfloat16 is read as float32: numpy has no such type.
NUMPY = {"f16": np.float16, "bf16": np.float32, "f32": np.float32}
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class Problem:
    """A problem and its data, rounded to its type."""

    def __init__(self, request: dict, folder: Path):
        self.op, self.shape, self.dtype, self.timed = (
            request[name] for name in ("op", "shape", "dtype", "pass")
        )
        self.is_channels_last = request.get("layout") == "channels_last"
        self.groups = min(GROUPS, self.shape[1]) if len(self.shape) > 1 else 1

        def read(name):
            return np.fromfile(folder / f"{name}.bin", np.float32).astype(NUMPY[self.dtype])

        self.input = read("input").reshape(self.shape)
        self.parameters = {"scale": read("gamma")}
        if self.op != "rms_norm":
            self.parameters["bias"] = read("beta")
        if self.op == "batch_norm":
            # Running statistics, which only inference reads.
            self.parameters["mean"] = np.zeros_like(self.parameters["scale"])
            self.parameters["variance"] = np.ones_like(self.parameters["scale"])

    def runs(self, memory: int = MEMORY, most: int = MOST_RUNS) -> int:
        """Largest number of runs of a sample."""
        tensors = 2 if self.timed == "forward" else 5
        size = 4 if self.dtype == "f32" else 2
        return max(1, min(most, memory // (tensors * size * self.input.size)))


class Torch:
    """A problem on PyTorch."""

    def __init__(self, problem: Problem):
        import torch

        self.is_cuda = is_cuda = os.environ.get("BURN_DEVICE") == "cuda" and torch.cuda.is_available()
        self.device = torch.device("cuda" if is_cuda else "cpu")
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[problem.dtype]
        torch.set_num_threads(THREADS)
        self.runtime = f"PyTorch {torch.__version__}, " + (
            torch.cuda.get_device_name() if is_cuda else f"{THREADS} threads"
        )
        self.torch, self.problem = torch, problem
        self.trains = problem.timed != "forward"
        torch.set_grad_enabled(self.trains)

        def upload(array, dtype=dtype):
            return torch.from_numpy(array).to(self.device, dtype, copy=True)

        self.norm = self.choose()
        params = {name: upload(array, self.of_params(dtype)) for name, array in problem.parameters.items()}
        self.parameters = params
        self.most_runs = problem.runs()
        if is_cuda:
            memory = max(MEMORY, torch.cuda.mem_get_info()[1] // SHARE)
            self.most_runs = problem.runs(memory, AGAIN * MOST_RUNS)
        tensors = min(self.most_runs, MOST_RUNS)
        self.inputs = [self.laid_out(upload(problem.input)) for _ in range(tensors)]
        if self.trains:
            self.weights = [self.parameters[n] for n in ("scale", "bias") if n in self.parameters]
            for tensor in self.inputs + self.weights:
                tensor.requires_grad_()
            self.ones = torch.ones_like(self.inputs[0])

    def of_params(self, dtype):
        """The type of scale and bias."""
        return dtype

    def choose(self):
        """The function that normalizes a tensor."""
        problem = self.problem
        return lambda x, parameters: libraries.pytorch(
            problem.op, x, parameters, EPSILON, groups=problem.groups, trains=self.trains
        )

    def laid_out(self, tensor):
        if self.problem.is_channels_last:
            return tensor.movedim(1, -1).contiguous().movedim(-1, 1)
        return tensor

    def forward(self, run: int):
        return self.norm(self.inputs[run % len(self.inputs)], self.parameters)

    def backward(self, run: int, y):
        x = self.inputs[run % len(self.inputs)]
        return self.torch.autograd.grad(y, [x, *self.weights], self.ones)

    def synchronize(self):
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def time(self, runs: int, by_device: bool = False) -> float:
        """Seconds by the host's clock, or between two events of the device."""
        made = None
        if self.problem.timed == "backward":
            made = [self.forward(run) for run in range(runs)]
        # Kept to the end, as the other providers keep theirs. The next output would otherwise reuse the memory,
        # which the cache still holds.
        kept = []
        self.synchronize()
        if by_device:
            first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
        start = time.perf_counter()
        for run in range(runs):
            kept.append((made[run], self.backward(run, made[run])) if made else self.run(run))
        if by_device:
            last.record()
        self.synchronize()
        return first.elapsed_time(last) / 1e3 if by_device else time.perf_counter() - start

    def run(self, run: int):
        y = self.forward(run)
        return (y, self.backward(run, y)) if self.trains else y

    def replay(self, runs: int, samples: int) -> list[float]:
        """Seconds of a replay of a CUDA graph of the runs."""
        if not self.is_cuda or self.problem.timed == "backward":
            return []
        torch = self.torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.run(0)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [self.run(run) for run in range(runs)]
        times = []
        # The first sample loads the graph.
        for _ in range(samples + 1):
            self.synchronize()
            start = time.perf_counter()
            for _ in range(REPLAYS):
                graph.replay()
            self.synchronize()
            times.append((time.perf_counter() - start) / REPLAYS)
        del kept
        return times[1:]

    def outcome(self) -> dict[str, np.ndarray]:
        y = self.forward(0)
        found = {"output": y}
        if self.trains:
            found["gradient"] = self.backward(0, y)[0]
        return {name: tensor.detach().float().cpu().numpy() for name, tensor in found.items()}


class TorchCompile(Torch):
    """PyTorch's compiler."""

    def choose(self):
        # Graphs compiled for other shapes would count against this one.
        self.torch._dynamo.reset()
        return self.torch.compile(super().choose(), dynamic=False)


class Kernels(Torch):
    """Kernels for rows, by a library on top of PyTorch."""

    def choose(self):
        if not self.is_cuda:
            raise libraries.Unsupported(f"{self.PACKAGE} needs CUDA")
        norms = self.norms()
        if self.problem.op not in norms or len(self.problem.shape) != 2:
            raise libraries.Unsupported(f"{self.PACKAGE} is measured on layer and RMS norm of rows")
        self.runtime = f"{self.PACKAGE} {importlib.metadata.version(self.PACKAGE)}, {self.runtime}"
        return norms[self.problem.op]


class Liger(Kernels):
    """Liger-Kernel."""

    PACKAGE = "liger-kernel"

    def norms(self):
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction as Layer
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Rms

        return {
            "layer_norm": lambda x, p: Layer.apply(x, p["scale"], p["bias"], EPSILON),
            "rms_norm": lambda x, p: Rms.apply(x, p["scale"], EPSILON, 0.0, "none", False),
        }


class Quack(Kernels):
    """QuACK, whose layer norm has scale and bias in float32 and no autograd of its own."""

    PACKAGE = "quack-kernels"

    def of_params(self, dtype):
        return self.torch.float32 if self.problem.op == "layer_norm" else dtype

    def norms(self):
        import quack.rmsnorm as quack

        class LayerNorm(self.torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale, bias):
                out, rstd, mean = quack.layernorm_fwd(
                    x, scale, bias, EPSILON, return_rstd=True, return_mean=True
                )
                ctx.save_for_backward(x, scale, rstd, mean)
                return out

            @staticmethod
            def backward(ctx, dy):
                x, scale, rstd, mean = ctx.saved_tensors
                return quack.layernorm_bwd(x, scale, dy, rstd, mean)

        return {
            "layer_norm": lambda x, p: LayerNorm.apply(x, p["scale"], p["bias"]),
            "rms_norm": lambda x, p: quack.rmsnorm(x, p["scale"], eps=EPSILON),
        }


class OnnxRuntime:
    """A problem on ONNX Runtime."""

    is_cuda = False

    def __init__(self, problem: Problem):
        import onnxruntime

        if problem.timed != "forward":
            raise libraries.Unsupported("ONNX Runtime has no backward pass")
        if problem.is_channels_last:
            raise libraries.Unsupported("ONNX Runtime has channels first")
        if problem.dtype == "bf16":
            raise libraries.Unsupported("no bfloat16 through numpy")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        self.session = libraries.onnxruntime(
            problem.op,
            {"x": problem.input},
            EPSILON,
            groups=problem.groups,
            constants=problem.parameters,
            options=options,
        )
        self.runtime = f"ONNX Runtime {onnxruntime.__version__}, {THREADS} threads"
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.bindings, self.outputs = [], []
        self.most_runs = problem.runs()
        for _ in range(self.most_runs):
            binding = self.session.io_binding()
            binding.bind_ortvalue_input("x", value(problem.input.copy()))
            output = value(np.empty_like(problem.input))
            binding.bind_ortvalue_output("y", output)
            self.bindings.append(binding)
            self.outputs.append(output)

    def time(self, runs: int) -> float:
        start = time.perf_counter()
        for run in range(runs):
            self.session.run_with_iobinding(self.bindings[run % len(self.bindings)])
        return time.perf_counter() - start

    def outcome(self) -> dict[str, np.ndarray]:
        self.time(1)
        return {"output": self.outputs[0].numpy()}


PEERS = {
    "torch": Torch,
    "torch.compile": TorchCompile,
    "liger": Liger,
    "quack": Quack,
    "onnxruntime": OnnxRuntime,
}


class Prepared:
    """A problem that is warm, with its result in the folder."""

    def __init__(self, name: str, request: dict, folder: Path):
        problem = Problem(request, folder)
        self.subject = PEERS[name](problem)
        warm_up(lambda: self.subject.time(1))
        for tensor, values in self.subject.outcome().items():
            values.astype(np.float32).tofile(folder / f"{tensor}.bin")
        self.runs = min(count(SAMPLE, self.subject.time(1)), self.subject.most_runs)
        self.samples = min(count(ROUND, warm_up(lambda: self.subject.time(self.runs))), SAMPLES)

    def round(self) -> dict[str, list[float]]:
        """Milliseconds of a run, once for each sample, by each clock."""

        def samples(*clock):
            return [1e3 * self.subject.time(self.runs, *clock) / self.runs for _ in range(self.samples)]

        gc.disable()
        times = {"wall": samples()}
        if self.subject.is_cuda:
            times["device"] = samples(True)
        gc.enable()
        return times

    def replay(self) -> dict[str, list[float]]:
        """Milliseconds of a run of a recorded graph, once for each sample."""
        times = self.subject.replay(self.runs, SAMPLES) if self.subject.is_cuda else []
        return {"wall": [], "replay": [1e3 * time / self.runs for time in times]}


def count(whole: float, one: float) -> int:
    return max(1, math.ceil(whole / max(one, 1e-9)))


def warm_up(sample) -> float:
    """Repeats until three samples in a row were no faster than the best before by 5 %."""
    start = time.perf_counter()
    best, stable = sample(), 0
    while stable < 3:
        if time.perf_counter() - start > 120:
            raise RuntimeError("still getting faster after 120 s")
        last = sample()
        stable = 0 if last < 0.95 * best else stable + 1
        best = min(best, last)
    return best


def settle() -> None:
    """Waits until this library's threads sleep. They poll for work on cores that the next provider needs."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.005)
        if time.process_time() - before < 0.001:
            break


def answer(name: str, folder: Path, request, prepared: Prepared | None):
    """The reply to a request, and the problem that is set up after it."""
    try:
        if request in ("round", "replay"):
            if prepared is None:
                raise RuntimeError("no problem is set up")
            return {"round": getattr(prepared, request)()}, prepared
        # The previous problem frees its memory first.
        del prepared
        prepared = Prepared(name, request["prepare"], folder)
        return {"ready": {"runtime": prepared.subject.runtime}}, prepared
    except Exception as error:  # noqa: BLE001, the next problem may succeed
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        is_absent = isinstance(error, (libraries.Unsupported, NotImplementedError))
        is_absent |= "not implemented for" in reason
        return {"unsupported" if is_absent else "failed": reason}, None


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in PEERS:
        raise SystemExit(__doc__)
    name, folder = sys.argv[1], Path(sys.argv[2])
    prepared = None
    for line in sys.stdin:
        reply, prepared = answer(name, folder, json.loads(line), prepared)
        settle()
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
