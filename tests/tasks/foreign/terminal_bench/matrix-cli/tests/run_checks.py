"""Runs the functions test_* of a file, and reports as pytest -rA does: this image has no pytest."""

import importlib.util
import sys
import time
import traceback

path = sys.argv[1]
spec = importlib.util.spec_from_file_location("outputs", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
started, lines, failed = time.time(), [], 0
for name, test in list(vars(module).items()):
    if name.startswith("test_"):
        try:
            test()
            lines.append(f"PASSED {path}::{name}")
        except Exception as error:
            failed += 1
            traceback.print_exc(file=sys.stdout)
            lines.append(f"FAILED {path}::{name} - {type(error).__name__}: {error}".splitlines()[0])
print(" short test summary info ".center(80, "="))
print("\n".join(lines))
counts = ", ".join(f"{n} {what}" for n, what in ((failed, "failed"), (len(lines) - failed, "passed")) if n)
print(f" {counts} in {time.time() - started:.2f}s ".center(80, "="))
sys.exit(1 if failed else 0)
