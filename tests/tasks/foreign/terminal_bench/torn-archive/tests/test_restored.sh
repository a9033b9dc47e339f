here=$(dirname "$0")
results=()
report() { # NAME STATUS
    if [ "$2" -eq 0 ]; then results+=("PASSED test_restored.sh::$1"); else results+=("FAILED test_restored.sh::$1"); fi
}

gzip -t /backup/whole.tar.gz
report test_archive_is_whole $?
(cd /restored && sha256sum --quiet -c "$here/expected.sha256")
report test_contents $?
cmp /restored.list "$here/expected.list"
report test_list $?

echo "==== short test summary info ===="
printf '%s\n' "${results[@]}"
