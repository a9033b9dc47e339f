cat runorder/plan.py
# ---
printf 'fetch:\nparse: fetch\nindex: fetch\nreport: parse index\n' > tasks.txt; python -m runorder tasks.txt
# ---
cat > fix.py <<'EOF'
from pathlib import Path

path = Path("runorder/plan.py")
text = path.read_text()
edits = {
    "    seen: list[str] = []\n": "    done: set[str] = set()\n    path: list[str] = []\n",
    """        if name in seen:
            raise CycleError([*seen[seen.index(name) :], name])
        seen.append(name)
""": """        if name in done:
            return
        if name in path:
            raise CycleError([*path[path.index(name) :], name])
        path.append(name)
""",
    "        order.append(name)\n": "        path.pop()\n        done.add(name)\n        order.append(name)\n",
    "        if goal not in order:\n            visit(goal)\n": "        visit(goal)\n",
}
for old, new in edits.items():
    assert old in text
    text = text.replace(old, new)
path.write_text(text)
EOF
python fix.py && rm fix.py
# ---
python -m runorder tasks.txt && rm tasks.txt && python -m pytest
