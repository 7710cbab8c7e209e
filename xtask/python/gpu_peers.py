"""How fast PyTorch, torch.compile, Liger-Kernel and QuACK normalize on an NVIDIA GPU, beside cubenorm.

    cubenorm-throughput 256 > cubenorm.txt
    python gpu_peers.py 256 --ours cubenorm.txt
    python gpu_peers.py 256 --ours report.json      # what gpu-check wrote

runs the same problems as `cubenorm-throughput` (same sizes, runs and samples, on the same device) with
every peer that can be imported, and prints one table: for each problem the share of a copy's bandwidth
that each comes to, and how many times faster than the fastest peer cubenorm's choice is. The copy is PyTorch's, device to
device, of as many bytes as the pass must move. Peers that are not installed are left out, and said to be.

Backward is what autograd runs for the gradients of input and parameters of a forward pass that is kept;
times are those of the device, between events around several runs, so that what Python takes is hidden
where the device takes longer.
"""

import argparse
import importlib
import json
import statistics
import sys

import torch
import torch.nn.functional as F

RUNS = 5
SAMPLES = 9
COLS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def milliseconds(run):
    """The median time of a run."""
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
    return statistics.median(samples)


def optional(module):
    try:
        return importlib.import_module(module)
    except Exception as error:  # What a GPU library does where it does not fit is its own.
        print(f"# {module}: left out, {type(error).__name__}: {error}", file=sys.stderr)
        return None


def peers():
    """For each operator the peers that have it: functions of input, scale and bias."""

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
    """QuACK's layer norm, which it has as two functions, made differentiable. Its scale and bias are float32."""

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, bias):
            out, rstd, mean = quack.layernorm_fwd(x, scale, bias, 1e-5, return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, scale, rstd, mean)
            return out

        @staticmethod
        def backward(ctx, above):
            x, scale, rstd, mean = ctx.saved_tensors
            return quack.layernorm_bwd(x, scale, above, rstd, mean)

    def layer_norm(x, scale, bias):
        return LayerNorm.apply(x, scale, bias)

    layer_norm.params = torch.float32
    return layer_norm


def measure(norm, op, dtype, rows, cols):
    """Milliseconds forward and backward; the reason in the place of what cannot be had."""
    x = torch.randn(rows, cols, device="cuda", dtype=dtype, requires_grad=True)
    above = torch.randn_like(x)
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
            lambda: torch.autograd.grad(y, wanted, above, retain_graph=True, allow_unused=True)
        )
    except Exception as error:
        times["backward"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return times


def copy_rate(bytes_moved):
    """Bytes per second of a copy that reads half of them and writes half."""
    source = torch.empty(bytes_moved // 2, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return bytes_moved / milliseconds(lambda: target.copy_(source)) * 1e3


def ours(path):
    """Milliseconds of the tuned candidate, of the analytic one where none is marked: from what
    `cubenorm-throughput` printed, or from gpu-check's report."""
    times = {}
    for key, time, is_tuned in reported(path) if path.endswith(".json") else printed(path):
        if is_tuned or key not in times:
            times[key] = time
    return times


def reported(path):
    for row in json.load(open(path))["throughput"]:
        if row["milliseconds"] is not None:
            key = tuple(str(row[name]) for name in ("op", "pass", "dtype", "rows", "cols"))
            yield key, row["milliseconds"], row["tuned"]


def printed(path):
    for line in open(path):
        fields = line.split()
        if len(fields) >= 9 and fields[1] in ("forward", "backward") and fields[5] != "-":
            yield tuple(fields[:5]), float(fields[5]), fields[8].startswith("*")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mebibytes", type=int, nargs="?", default=256, help="size of a tensor")
    parser.add_argument("--ours", help="what cubenorm-throughput printed or gpu-check reported, to set beside")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="only these")
    parser.add_argument("--peer", action="append", help="only these")
    arguments = parser.parse_args()
    mine = ours(arguments.ours) if arguments.ours else {}
    wanted = arguments.peer
    found = {
        op: {name: norm for name, norm in of_op.items() if not wanted or name in wanted}
        for op, of_op in peers().items()
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
                    rate = copy_rate(moved)
                    share = lambda time: f"{moved / time * 1e3 / rate:.0%}"
                    own = mine.get((op, direction, dtype, str(rows), str(cols)))
                    cells, best = [], None
                    for name in names:
                        time = times.get(name, {}).get(direction)
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
