"""hyper_layout is pure Python: it loads no framework, and no NumPy either."""

import json
import subprocess
import sys

CODE = """
import json, sys
before = set(sys.modules)
import hyper_layout
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_importing_it_loads_only_itself_and_the_standard_library():
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(out))
    assert "hyper_layout" in loaded
    assert not loaded & {"torch", "torch_npu", "mindspore", "numpy"}
    assert loaded - {"hyper_layout"} <= set(sys.stdlib_module_names)
