"""Compiles sources with NVRTC or hipRTC, neither of which needs a device.

    runtime_compiler.py LIBRARY nvrtc|hiprtc

Takes lines of JSON, `{"file": ..., "options": [...]}`, and answers each with a line, `{"error": ...}`,
which is null for a source that compiles.
"""

import ctypes
import json
import sys
from pathlib import Path


class Compiler:
    """The functions of both libraries, whose names differ in the prefix."""

    def __init__(self, library, prefix):
        # The libraries that it loads are in the same folder.
        self.library = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self.prefix = prefix

    def call(self, name, *arguments):
        return getattr(self.library, self.prefix + name)(*arguments)

    def log(self, program):
        size = ctypes.c_size_t()
        self.call("GetProgramLogSize", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.call("GetProgramLog", program, text)
        return text.value.decode(errors="replace").strip()

    def compile(self, file, options):
        """The errors of a source, or None."""
        path = Path(file)
        program = ctypes.c_void_p()
        status = self.call(
            "CreateProgram",
            ctypes.byref(program),
            path.read_bytes(),
            path.name.encode(),
            0,
            None,
            None,
        )
        if status != 0:
            return f"no program was made: status {status}"
        encoded = [option.encode() for option in options]
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        try:
            status = self.call("CompileProgram", program, len(encoded), array)
            return None if status == 0 else self.log(program) or f"status {status}"
        finally:
            self.call("DestroyProgram", ctypes.byref(program))


def main():
    compiler = Compiler(*sys.argv[1:])
    for line in sys.stdin:
        source = json.loads(line)
        error = compiler.compile(source["file"], source["options"])
        print(json.dumps({"error": error}), flush=True)


main()
