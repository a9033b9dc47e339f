make_folder a.tar b.tar
for keep in 0 -1 two ""; do
  rotate "$keep" "$folder"
  [ $? -eq 2 ] || exit 1
  [ -s "$folder.err" ] || exit 1
done
[ "$(left)" = "a.tar|b.tar|" ]
