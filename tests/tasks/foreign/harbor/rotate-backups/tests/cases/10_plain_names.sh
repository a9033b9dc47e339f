make_folder new.tar middle.tar old.tar older.tar oldest.tar
rotate "$KEEP" "$folder"
[ "$(left)" = "middle.tar|new.tar|old.tar|" ]
