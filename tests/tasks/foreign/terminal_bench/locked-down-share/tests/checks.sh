mode_is() { # MODE PATH...
    local mode=$1 path
    shift
    for path; do
        [ "$(stat -c %a "$path")" = "$mode" ] || { echo "$path: $(stat -c %a "$path"), not $mode"; return 1; }
    done
}

test_folders() {
    mode_is 750 /data/share /data/share/plans /data/share/tools /data/share/tools/old
}

test_documents() {
    mode_is 640 /data/share/notes.txt /data/share/plans/monday.txt "/data/share/plans/next week.txt"
}

test_scripts() {
    mode_is 750 /data/share/tools/count.sh /data/share/tools/old/count.sh
}

test_secrets() {
    mode_is 400 /data/share/.password /data/share/tools/.token
}

test_contents_are_as_they_were() {
    [ "$(cat "/data/share/plans/next week.txt")" = "sell apples" ] && [ "$(cat /data/share/.password)" = "hunter2" ]
}
