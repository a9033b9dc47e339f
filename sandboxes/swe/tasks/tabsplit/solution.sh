cat tabsplit/split.py
# ---
cat > fix.py <<'EOF'
from pathlib import Path

path = Path("tabsplit/split.py")
text = path.read_text()
old = "    return {name: Money(round(amount.cents * weight / total)) for name, weight in weights.items()}\n"
new = """    sign = -1 if amount.cents < 0 else 1
    exact = {name: divmod(abs(amount.cents) * weight, total) for name, weight in weights.items()}
    shares = {name: whole for name, (whole, _) in exact.items()}
    left_over = abs(amount.cents) - sum(shares.values())
    by_cut = sorted(exact, key=lambda name: exact[name][1], reverse=True)
    for name in by_cut[:left_over]:
        shares[name] += 1
    return {name: Money(sign * share) for name, share in shares.items()}
"""
assert old in text
path.write_text(text.replace(old, new))
EOF
python fix.py && rm fix.py
# ---
python -m pytest
