"""The operators in the words of PyTorch and ONNX Runtime, for the scripts that compare with them."""

import numpy as np


class Unsupported(Exception):
    """The library does not have the operator for the type."""


def pytorch(op: str, x, parameters: dict, epsilon: float, *, groups: int = 1, trains: bool = False):
    """PyTorch's result for `x`; `parameters` are any of scale, bias, mean and variance."""
    from torch.nn import functional

    scale, bias = parameters.get("scale"), parameters.get("bias")
    match op:
        case "layer_norm":
            return functional.layer_norm(x, x.shape[-1:], scale, bias, epsilon)
        case "rms_norm":
            return functional.rms_norm(x, x.shape[-1:], scale, epsilon)
        case "instance_norm":
            return functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)
        case "group_norm":
            return functional.group_norm(x, groups, scale, bias, epsilon)
        case "batch_norm":
            running = parameters["mean"], parameters["variance"]
            return functional.batch_norm(x, *running, scale, bias, training=trains, eps=epsilon)
        case "mean_variance_norm":
            # It has no operator of this name. This is the same, over all axes.
            return functional.layer_norm(x, x.shape, eps=epsilon)
        case other:
            raise Unsupported(f"no {other}")


def onnxruntime(
    op: str,
    inputs: dict[str, np.ndarray],
    epsilon: float,
    *,
    groups: int = 1,
    constants: dict[str, np.ndarray] | None = None,
    options=None,
):
    """A session of ONNX Runtime that computes `y` from `inputs`, the tensor to normalize first, and from
    `constants`, which are a model's weights."""
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    constants = constants or {}
    operator, attributes = {
        "layer_norm": ("LayerNormalization", {"axis": -1, "epsilon": epsilon}),
        "rms_norm": ("RMSNormalization", {"axis": -1, "epsilon": epsilon}),
        "instance_norm": ("InstanceNormalization", {"epsilon": epsilon}),
        "group_norm": ("GroupNormalization", {"epsilon": epsilon, "num_groups": groups}),
        "batch_norm": ("BatchNormalization", {"epsilon": epsilon}),
        # MeanVarianceNormalization has no epsilon to set. This is the same, over all axes.
        "mean_variance_norm": ("LayerNormalization", {"axis": 0, "epsilon": epsilon}),
    }.get(op, (None, None))
    if operator is None:
        raise Unsupported(f"no {op}")

    first = next(iter(inputs.values()))
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    graph = helper.make_graph(
        [helper.make_node(operator, [*inputs, *constants], ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info(name, kind, a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info("y", kind, first.shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001, its exceptions share no class
        if "NOT_IMPLEMENTED" in str(error):
            raise Unsupported(f"no {operator} of {first.dtype}") from error
        raise
