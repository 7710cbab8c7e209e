"""Draws the line of text, and computes what ONNX Runtime makes of it.

    pip install onnxruntime==1.32.0 pillow numpy
    python make_fixture.py classifier.onnx

classifier.onnx is rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx of the wheel.
"""

import json
import pathlib
import sys

import numpy
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

HEIGHT, WIDTH = 48, 192
FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"


def line_of_text():
    picture = Image.new("L", (WIDTH, HEIGHT), 235)
    font = ImageFont.load_default(size=30)
    ImageDraw.Draw(picture).text((10, 5), "Which way up?", font=font, fill=20)
    return picture


def batch(picture):
    """The line as it is, and upside down: [2, 3, height, width] in [-1, 1]."""
    upright = numpy.asarray(picture, dtype=numpy.float32) / 127.5 - 1
    both = numpy.stack([upright, upright[::-1, ::-1]])
    return numpy.repeat(both[:, None], 3, axis=1)


def main():
    picture = line_of_text()
    picture.save(FIXTURES / "line.png", optimize=True)
    session = onnxruntime.InferenceSession(sys.argv[1])
    (probabilities,) = session.run(None, {session.get_inputs()[0].name: batch(picture)})
    rows = [[float(value) for value in row] for row in probabilities]
    text = json.dumps({"onnxruntime": onnxruntime.__version__, "probabilities": rows}, indent=1)
    (FIXTURES / "probabilities.json").write_text(text + "\n")
    print(text)


main()
