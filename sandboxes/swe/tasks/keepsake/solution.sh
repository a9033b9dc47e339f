cat keepsake/cache.py
# ---
cat > fix.py <<'EOF'
from pathlib import Path

path = Path("keepsake/cache.py")
text = path.read_text()
edits = {
    "        self.stats.hits += 1\n": "        self._entries.move_to_end(key)\n        self.stats.hits += 1\n",
    """        if len(self._entries) >= self.capacity:
            self._entries.popitem(last=False)
            self.stats.evictions += 1
        self._entries[key] = (self._clock.now() + self.ttl, value)
""": """        self._drop_expired()
        if key not in self._entries and len(self._entries) >= self.capacity:
            self._entries.popitem(last=False)
            self.stats.evictions += 1
        self._entries[key] = (self._clock.now() + self.ttl, value)
        self._entries.move_to_end(key)

    def _drop_expired(self) -> None:
        now = self._clock.now()
        for key in [key for key, (expires, _) in self._entries.items() if expires <= now]:
            del self._entries[key]
            self.stats.expirations += 1
""",
}
for old, new in edits.items():
    assert old in text
    text = text.replace(old, new)
path.write_text(text)
EOF
python fix.py && rm fix.py
# ---
python -m pytest
