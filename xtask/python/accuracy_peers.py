"""Computes the cases of `cargo xtask accuracy` with another library, on the CPU.

Usage: accuracy_peers.py FOLDER NAME

NAME is pytorch or onnxruntime. FOLDER has cases.json and a raw file for each tensor, as
`cubenorm-accuracy export` writes them; FOLDER/NAME gets a raw file for each output, or a text file
that says why there is none.
"""

import json
import sys
from pathlib import Path

import numpy as np

# bfloat16 travels as its bits: numpy has no such type.
NUMPY = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}


class Unsupported(Exception):
    """The library does not have the operator for the type."""


def tensors(folder: Path, case: dict) -> dict[str, np.ndarray]:
    arrays = {}
    for name in case["tensors"]:
        raw = np.fromfile(folder / f"{case['name']}.{name}.bin", NUMPY[case["dtype"]])
        arrays[name] = raw.reshape(case["shape"]) if name == "input" else raw
    return arrays


def pytorch(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray:
    import torch
    from torch.nn import functional

    def tensor(array):
        found = torch.from_numpy(array)
        return found.view(torch.bfloat16) if case["dtype"] == "bf16" else found

    x, *parameters = (tensor(array) for array in arrays.values())
    epsilon = case["epsilon"]
    match case["op"]:
        case "layer_norm":
            y = functional.layer_norm(x, x.shape[-1:], *parameters, eps=epsilon)
        case "rms_norm":
            y = functional.rms_norm(x, x.shape[-1:], *parameters, eps=epsilon)
        case "instance_norm":
            weight, bias = parameters
            y = functional.instance_norm(x, weight=weight, bias=bias, eps=epsilon)
        case "batch_norm":
            weight, bias, mean, variance = parameters
            y = functional.batch_norm(x, mean, variance, weight, bias, eps=epsilon)
        case "mean_variance_norm":
            # It has no operator of this name: this is one, over all axes.
            y = functional.layer_norm(x, x.shape, eps=epsilon)
        case other:
            raise Unsupported(f"no {other}")
    y = y.contiguous()
    return (y.view(torch.uint16) if case["dtype"] == "bf16" else y).numpy()


def onnxruntime(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    if case["dtype"] == "bf16":
        raise Unsupported("no bfloat16 through numpy")
    kind = {"f16": TensorProto.FLOAT16, "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE}
    kind = kind[case["dtype"]]
    names = list(arrays)
    epsilon = case["epsilon"]
    match case["op"]:
        case "layer_norm":
            node = ("LayerNormalization", {"axis": -1, "epsilon": epsilon})
        case "rms_norm":
            node = ("RMSNormalization", {"axis": -1, "epsilon": epsilon})
        case "instance_norm":
            node = ("InstanceNormalization", {"epsilon": epsilon})
        case "batch_norm":
            node = ("BatchNormalization", {"epsilon": epsilon})
        case "mean_variance_norm":
            # MeanVarianceNormalization has no epsilon to set; this is it, over all axes.
            arrays["scale"] = np.ones(case["shape"], NUMPY[case["dtype"]])
            names = list(arrays)
            node = ("LayerNormalization", {"axis": 0, "epsilon": epsilon})
        case other:
            raise Unsupported(f"no {other}")
    operator, attributes = node
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "case",
        [helper.make_tensor_value_info(n, kind, arrays[n].shape) for n in names],
        [helper.make_tensor_value_info("y", kind, case["shape"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # What it would fuse or replace is what is compared: the operator as it stands.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001, its exceptions have no common class
        if "NOT_IMPLEMENTED" in str(error):
            raise Unsupported(f"no {operator} of {case['dtype']}") from error
        raise
    return session.run(["y"], arrays)[0]


PEERS = {"pytorch": pytorch, "onnxruntime": onnxruntime}


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[2] not in PEERS:
        raise SystemExit(__doc__)
    folder, name = Path(sys.argv[1]), sys.argv[2]
    output = folder / name
    output.mkdir(exist_ok=True)
    for old in output.iterdir():
        old.unlink()
    for case in json.loads((folder / "cases.json").read_text()):
        try:
            result = PEERS[name](case, tensors(folder, case))
        except Exception as error:  # noqa: BLE001, one case must not keep the others from running
            reason = str(error).strip().splitlines() or [type(error).__name__]
            (output / f"{case['name']}.txt").write_text(reason[0] + "\n")
        else:
            result.tofile(output / f"{case['name']}.bin")


if __name__ == "__main__":
    main()
