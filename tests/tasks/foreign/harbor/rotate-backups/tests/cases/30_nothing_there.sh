make_folder readme.txt
rotate "$KEEP" "$folder" && [ "$(left)" = "readme.txt|" ]
