#!/bin/bash
set -e
: "${TARGET:?}"
python3 - <<'PY'
import os
from pathlib import Path

policy = Path(os.environ["TARGET"], "policy.py")
text = policy.read_text()
start = text.index("        wait = self.first\n")
policy.write_text(
    text[:start]
    + "        wait = min(self.first, self.longest)\n"
    + "        for _ in range(self.attempts - 1):\n"
    + "            yield wait\n"
    + "            wait = min(wait * 2, self.longest)\n"
)
sender = Path(os.environ["TARGET"], "sender.py")
text = sender.read_text()
text = text.replace("import GaveUp", "import DeliveryError, GaveUp").replace("except Exception", "except DeliveryError")
sender.write_text(text)
PY
