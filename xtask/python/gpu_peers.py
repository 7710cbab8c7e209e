"""Measures PyTorch, torch.compile, Liger-Kernel and QuACK on an NVIDIA GPU, on the rows of gpu-check's benchmark.

    python gpu_peers.py 256 --ours report.json --csv rows.csv      # report.json is gpu-check's

Sizes, runs and samples are those of gpu-check's step `bench`. Every baseline that can be imported is measured, and the
others are named on standard error. The table has, for each problem, the share of a copy's bandwidth of each
baseline, and how many times faster cubenorm's choice is than the fastest baseline. The copy is PyTorch's, device to
device, of the bytes that the pass must move.

Backward is what autograd runs for the gradients of input and parameters of a forward pass that is kept. Times are
the device's, between events around several runs. They hide the time of Python if the device takes longer.

--csv writes the rows for `cargo xtask bench --record FILE`.
"""

import argparse
import csv
import datetime
import importlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

RUNS = 5
SAMPLES = 9
COLS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


# The Python package of each baseline, whose version a row names.
PACKAGES = {"torch": "torch", "torch.compile": "torch", "liger": "liger-kernel", "quack": "quack-kernels"}
# The columns of benches/data/results.csv without the id: xtask/src/commands/bench/results.rs has the same.
COLUMNS = (
    "date,commit,machine,driver,burn,cubecl,command,device,runtime,provider,op,shape,layout,dtype,pass,plan,"
    "median_ms,p20_ms,p80_ms,device_ms,device_p20_ms,device_p80_ms,gb_per_s,share_of_copy,note"
).split(",")


class Time(float):
    """Milliseconds of a run: the median, with the bounds of the middle 60 % of the samples."""

    def __new__(cls, samples):
        time = super().__new__(cls, statistics.median(samples))
        fifths = statistics.quantiles(samples, n=5, method="inclusive")
        time.p20, time.p80 = fifths[0], fifths[-1]
        return time


def milliseconds(run):
    """The time of a run by the device's clock."""
    for _ in range(3):
        run()
    samples = []
    for _ in range(SAMPLES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(RUNS):
            run()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) / RUNS)
    return Time(samples)


def optional(module):
    try:
        return importlib.import_module(module)
    except Exception as error:  # A GPU library may raise anything.
        print(f"# {module}: left out, {type(error).__name__}: {error}", file=sys.stderr)
        return None


def baselines():
    """For each operator the baselines that have it: functions of input, scale and bias."""

    def rms_norm(x, scale, bias):
        return F.rms_norm(x, x.shape[-1:], scale, 1e-5)

    def layer_norm(x, scale, bias):
        return F.layer_norm(x, x.shape[-1:], scale, bias, 1e-5)

    found = {
        "rms_norm": {"torch": rms_norm, "torch.compile": torch.compile(rms_norm, dynamic=False)},
        "layer_norm": {"torch": layer_norm, "torch.compile": torch.compile(layer_norm, dynamic=False)},
    }
    if liger := optional("liger_kernel.ops.rms_norm"):
        apply = liger.LigerRMSNormFunction.apply
        found["rms_norm"]["liger"] = lambda x, scale, bias: apply(x, scale, 1e-5, 0.0, "none", False)
    if liger := optional("liger_kernel.ops.layer_norm"):
        layer = liger.LigerLayerNormFunction.apply
        found["layer_norm"]["liger"] = lambda x, scale, bias: layer(x, scale, bias, 1e-5)
    if quack := optional("quack.rmsnorm"):
        found["rms_norm"]["quack"] = lambda x, scale, bias: quack.rmsnorm(x, scale, eps=1e-5)
        found["layer_norm"]["quack"] = layer_norm_of_quack(quack)
    return found


def layer_norm_of_quack(quack):
    """A differentiable layer norm of QuACK's two functions. Its scale and bias are float32."""

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, bias):
            out, rstd, mean = quack.layernorm_fwd(x, scale, bias, 1e-5, return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, scale, rstd, mean)
            return out

        @staticmethod
        def backward(ctx, dy):
            x, scale, rstd, mean = ctx.saved_tensors
            return quack.layernorm_bwd(x, scale, dy, rstd, mean)

    def layer_norm(x, scale, bias):
        return LayerNorm.apply(x, scale, bias)

    layer_norm.params = torch.float32
    return layer_norm


def measure(norm, op, dtype, rows, cols):
    """The time of each pass, or the reason for none."""
    x = torch.randn(rows, cols, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn_like(x)
    params = {"device": "cuda", "dtype": getattr(norm, "params", dtype), "requires_grad": True}
    scale = torch.randn(cols, **params)
    bias = torch.randn(cols, **params) if op == "layer_norm" else None
    times = {}
    try:
        with torch.no_grad():
            expected = (F.layer_norm if op == "layer_norm" else F.rms_norm)(
                x[:64].double(),
                (cols,),
                scale.double(),
                *([bias.double()] if bias is not None else []),
                eps=1e-5,
            )
            off = (norm(x[:64].contiguous(), scale, bias).double() - expected).norm() / expected.norm()
            if not off < 1e-2:
                raise ValueError(f"off by {off:.2g}")
            times["forward"] = milliseconds(lambda: norm(x, scale, bias))
    except Exception as error:
        return {"forward": f"{type(error).__name__}: {error}".splitlines()[0]}
    try:
        y = norm(x, scale, bias)
        wanted = [tensor for tensor in (x, scale, bias) if tensor is not None]
        times["backward"] = milliseconds(
            lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True, allow_unused=True)
        )
    except Exception as error:
        times["backward"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return times


def copy_time(bytes_moved):
    """The time of a copy that reads half of the bytes and writes the other half."""
    source = torch.empty(bytes_moved // 2, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return milliseconds(lambda: target.copy_(source))


class Rows:
    """Rows in the schema of benches/data/results.csv."""

    def __init__(self, report, path):
        package = json.load(open(report))["package"]
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
        self.origin = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
            "commit": package["commit"],
            "machine": torch.cuda.get_device_name(),
            "driver": f"NVIDIA {driver}".strip(),
            "cubecl": package["cubecl"],
            "command": command(sys.argv[1:]),
            "device": "cuda",
            "layout": "contiguous",
        }
        self.file = open(path, "w", newline="")
        self.writer = csv.DictWriter(self.file, COLUMNS, lineterminator="\n")
        self.writer.writeheader()

    def add(self, provider, op, direction, dtype, rows, cols, moved, time, copy):
        """A provider's time, or the reason for none."""
        package = PACKAGES.get(provider, "torch")
        row = {
            **self.origin,
            "runtime": "cuda" if provider == "cubenorm" else f"{package} {importlib.metadata.version(package)}",
            "provider": provider,
            "op": op,
            "shape": f"{rows}x{cols}",
            "dtype": dtype,
            "pass": direction,
        }
        if isinstance(time, float):
            row["device_ms"] = round(time, 6)
            if isinstance(time, Time):
                row |= {"device_p20_ms": round(time.p20, 6), "device_p80_ms": round(time.p80, 6)}
            row |= {"gb_per_s": round(moved / time / 1e6, 6), "share_of_copy": round(copy / time, 6)}
        else:
            row["note"] = f"failed: {time}"
        self.writer.writerow(row)
        self.file.flush()


def command(arguments):
    """The command line without the path that the rows are written to."""
    kept = ["python gpu_peers.py"]
    words = iter(arguments)
    for word in words:
        if word == "--csv":
            next(words)
        elif not word.startswith("--csv="):
            kept.append(os.path.basename(word))
    return " ".join(kept)


def ours(path):
    """Milliseconds of the tuned candidate, or of the analytic one if none is marked, from gpu-check's report."""
    times = {}
    for row in json.load(open(path))["throughput"]:
        key = tuple(str(row[name]) for name in ("op", "pass", "dtype", "rows", "cols"))
        if row["milliseconds"] is not None and (row["tuned"] or key not in times):
            times[key] = row["milliseconds"]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mebibytes", type=int, nargs="?", default=256, help="size of a tensor")
    parser.add_argument("--ours", help="gpu-check's report.json, to compare with")
    parser.add_argument("--csv", help="write the rows to this file; needs gpu-check's report.json as --ours")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="only these")
    parser.add_argument("--peer", action="append", help="only these")
    arguments = parser.parse_args()
    if arguments.csv and not arguments.ours:
        parser.error("--csv takes commit and version from gpu-check's report: give it as --ours report.json")
    csv_rows = Rows(arguments.ours, arguments.csv) if arguments.csv else None
    mine = ours(arguments.ours) if arguments.ours else {}
    wanted = arguments.peer
    found = {
        op: {name: norm for name, norm in of_op.items() if not wanted or name in wanted}
        for op, of_op in baselines().items()
    }
    names = sorted({name for of_op in found.values() for name in of_op})
    print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, tensors of {arguments.mebibytes} MiB;")
    print("# share of a copy's bandwidth")
    print("op pass dtype rows cols copy_GB/s cubenorm " + " ".join(names) + " speedup_over_best_peer")
    for dtype in arguments.dtype or DTYPES:
        for cols in COLS:
            rows = (arguments.mebibytes << 20) // DTYPES[dtype].itemsize // cols
            for op, of_op in found.items():
                # Graphs compiled for other shapes would count against this one.
                torch._dynamo.reset()
                times = {name: measure(norm, op, DTYPES[dtype], rows, cols) for name, norm in of_op.items()}
                for direction, tensors in (("forward", 2), ("backward", 3)):
                    moved = tensors * rows * cols * DTYPES[dtype].itemsize
                    copy = copy_time(moved)
                    rate = moved / copy * 1e3
                    share = lambda time: f"{copy / time:.0%}"
                    own = mine.get((op, direction, dtype, str(rows), str(cols)))

                    def record(name, time):
                        if csv_rows and time:
                            csv_rows.add(name, op, direction, dtype, rows, cols, moved, time, copy)

                    record("cubenorm", own)
                    record("copy", copy)
                    cells, best = [], None
                    for name in names:
                        time = times.get(name, {}).get(direction)
                        record(name, time)
                        if isinstance(time, float):
                            cells.append(share(time))
                            best = min(best or time, time)
                        else:
                            cells.append("-")
                            if time:
                                print(f"# {name} {op} {direction} {dtype} {cols}: {time}", file=sys.stderr)
                    ahead = f"{best / own:.2f}" if own and best else "-"
                    row = [op, direction, dtype, rows, cols, f"{rate / 1e9:.0f}", share(own) if own else "-"]
                    print(*row, *cells, ahead, flush=True)


if __name__ == "__main__":
    main()
