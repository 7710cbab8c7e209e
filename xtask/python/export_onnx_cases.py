"""Exports ONNX's backend node tests of the normalization operators.

Usage: export_onnx_cases.py FOLDER

FOLDER gets, in the layout of ONNX's own tests, a folder for each case with model.onnx and
test_data_set_N/{input,output}_K.pb, and cases.json with each case's name, operator, opset and
tolerances. What was exported there before is removed.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

OPERATORS = {
    "MeanVarianceNormalization",
    "BatchNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "RMSNormalization",
    "LpNormalization",
}


def is_wanted(case) -> bool:
    nodes = case.model.graph.node
    # A function body in place of the operator is another test, even if it has one node.
    return (
        len(nodes) == 1
        and nodes[0].op_type in OPERATORS
        and nodes[0].domain in ("", "ai.onnx")
        and "_expanded" not in case.name
    )


def write_tensors(folder: Path, kind: str, values, infos) -> None:
    if len(values) > len(infos):
        raise SystemExit(f"{folder}: {len(values)} {kind}s for {len(infos)} of the graph")
    for index, (value, info) in enumerate(zip(values, infos)):
        if not isinstance(value, onnx.TensorProto):
            value = numpy_helper.from_array(np.asarray(value), info.name)
        (folder / f"{kind}_{index}.pb").write_bytes(value.SerializeToString())


def export(case, folder: Path) -> dict:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    graph = case.model.graph
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        write_tensors(data, "input", inputs, graph.input)
        write_tensors(data, "output", outputs, graph.output)
    opset = next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))
    return {
        "name": case.name,
        "op": graph.node[0].op_type,
        "opset": opset,
        "rtol": case.rtol,
        "atol": case.atol,
    }


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    # Some inputs are drawn while the tests are collected: the same ones each time.
    np.random.seed(0)
    with warnings.catch_warnings():
        # Collecting runs the tests of every operator. Some overflow on purpose.
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = [case for case in collect_testcases(None) if is_wanted(case)]
    if not wanted:
        raise SystemExit(f"onnx {onnx.__version__} has no test of these operators")
    cases = [export(case, folder / case.name) for case in wanted]
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    counts = {op: sum(case["op"] == op for case in cases) for op in sorted(OPERATORS)}
    print(f"{len(cases)} cases of onnx {onnx.__version__}:", end=" ")
    print(", ".join(f"{op} {count}" for op, count in counts.items()))


if __name__ == "__main__":
    main()
