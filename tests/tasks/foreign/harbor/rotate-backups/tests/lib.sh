# Shared by all cases: a folder with backups of known ages.

make_folder() {
  folder=$(mktemp -d)
  local age=0 name
  for name in "$@"; do
    : >"$folder/$name"
    touch -d "2024-05-01 00:00:00 UTC - $age hours" "$folder/$name"
    age=$((age + 1))
  done
}

left() {
  (cd "$folder" && find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort | tr '\n' '|')
}

rotate() {
  /srv/backup/rotate.sh "$@" >"$folder.out" 2>"$folder.err"
}
