#!/bin/bash
# Delete all but the newest backups.
set -u

keep=${1:-} folder=${2:-}
case $keep in
'' | 0 | *[!0-9]*)
    echo "usage: rotate.sh KEEP FOLDER: KEEP must be a positive whole number, got '$keep'" >&2
    exit 2
    ;;
esac
cd -- "$folder" || exit 1
shopt -s nullglob
backups=(*.tar)
[ ${#backups[@]} -gt 0 ] || exit 0
ls -t -- "${backups[@]}" | tail -n +$((keep + 1)) | while IFS= read -r file; do
    rm -- "$file"
done
