"""Computes the cases of `cargo xtask accuracy` with another library, on the CPU.

Usage: accuracy_peers.py FOLDER NAME

NAME is pytorch or onnxruntime. FOLDER has cases.json and a raw file for each tensor, as
`cubenorm-accuracy export` writes them; FOLDER/NAME gets a raw file for each output, or a text file
that says why there is none.
"""

import json
import sys
from pathlib import Path

import libraries
import numpy as np

# bfloat16 is passed as its bits: numpy has no such type.
NUMPY = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}


def tensors(folder: Path, case: dict) -> dict[str, np.ndarray]:
    arrays = {}
    for name in case["tensors"]:
        raw = np.fromfile(folder / f"{case['name']}.{name}.bin", NUMPY[case["dtype"]])
        arrays[name] = raw.reshape(case["shape"]) if name == "input" else raw
    return arrays


def pytorch(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray:
    import torch

    def tensor(array):
        found = torch.from_numpy(array)
        return found.view(torch.bfloat16) if case["dtype"] == "bf16" else found

    parameters = {name: tensor(array) for name, array in arrays.items()}
    x = parameters.pop("input")
    y = libraries.pytorch(case["op"], x, parameters, case["epsilon"]).contiguous()
    return (y.view(torch.uint16) if case["dtype"] == "bf16" else y).numpy()


def onnxruntime(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    if case["dtype"] == "bf16":
        raise libraries.Unsupported("no bfloat16 through numpy")
    if case["op"] == "mean_variance_norm":
        arrays["scale"] = np.ones(case["shape"], NUMPY[case["dtype"]])
    options = onnxruntime.SessionOptions()
    # Without its graph optimizations: the operator itself is measured.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = libraries.onnxruntime(case["op"], arrays, case["epsilon"], options=options)
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
        except Exception as error:  # noqa: BLE001, one case must not stop the others
            reason = str(error).strip().splitlines() or [type(error).__name__]
            (output / f"{case['name']}.txt").write_text(reason[0] + "\n")
        else:
            result.tofile(output / f"{case['name']}.bin")


if __name__ == "__main__":
    main()
