#!/usr/bin/env python3
"""Write the reference embeddings that `--check` compares against.

An implementation of all-MiniLM-L6-v2 that shares nothing with the Rust one: NumPy in float64, one
sentence at a time, so without padding or an attention mask.

    python3 -m venv venv
    venv/bin/pip install numpy safetensors tokenizers
    venv/bin/python make_fixture.py MODEL_DIR > fixture.json

MODEL_DIR holds model.safetensors, tokenizer.json and config.json; the example leaves them in
target/minilm.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SENTENCES = [
    "A man is playing the guitar.",
    "Someone strums an acoustic instrument on stage.",
    "The central bank raised interest rates by half a point.",
    "Hi!",
    "Où est la gare? Der Zug fährt um 17:45 ab, sagt Zoë.",
    "Normalization keeps the activations of a deep network in a range where its gradients neither "
    "vanish nor explode, which is why every transformer layer carries two of them.",
]

# The model card's maximum; the tokenizer file itself asks for 128.
MAX_TOKENS = 256

erf = np.vectorize(math.erf, otypes=[np.float64])


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normalized = (x - mean) / np.sqrt(variance + epsilon)
    return normalized * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def attention(x, weights, name, heads):
    tokens, hidden = x.shape
    size = hidden // heads

    def split(part):
        y = linear(x, weights, f"{name}.self.{part}")
        return y.reshape(tokens, heads, size).transpose(1, 0, 2)

    query, key, value = split("query"), split("key"), split("value")
    scores = softmax(query @ key.transpose(0, 2, 1) / math.sqrt(size))
    context = (scores @ value).transpose(1, 0, 2).reshape(tokens, hidden)
    return linear(context, weights, f"{name}.output.dense")


def embed(ids, weights, config):
    epsilon = config["layer_norm_eps"]
    x = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = layer_norm(x, weights, "embeddings.LayerNorm", epsilon)
    for i in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{i}"
        y = attention(x, weights, f"{name}.attention", config["num_attention_heads"])
        x = layer_norm(x + y, weights, f"{name}.attention.output.LayerNorm", epsilon)
        y = gelu(linear(x, weights, f"{name}.intermediate.dense"))
        y = linear(y, weights, f"{name}.output.dense")
        x = layer_norm(x + y, weights, f"{name}.output.LayerNorm", epsilon)
    pooled = x.mean(axis=0)
    return pooled / np.linalg.norm(pooled)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = Path(sys.argv[1])
    config = json.loads((model / "config.json").read_text())
    weights = {
        name: tensor.astype(np.float64) if tensor.dtype.kind == "f" else tensor
        for name, tensor in load_file(model / "model.safetensors").items()
    }
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)

    entries = []
    for sentence in SENTENCES:
        ids = tokenizer.encode(sentence).ids
        vector = embed(ids, weights, config)
        entries.append(
            {
                "sentence": sentence,
                "tokens": ids,
                "embedding": [float(f"{value:.8g}") for value in vector],
            }
        )

    # One entry's vector per line: small, and still readable in a diff.
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
