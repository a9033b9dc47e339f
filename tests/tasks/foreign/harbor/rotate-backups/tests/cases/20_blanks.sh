make_folder "monday night.tar" "sunday night.tar" "b c.tar" "b.tar" "c.tar"
rotate 2 "$folder"
[ "$(left)" = "monday night.tar|sunday night.tar|" ]
