mkdir -p /data/share/plans /data/share/tools/old
echo "buy apples" >/data/share/plans/monday.txt
echo "sell apples" >"/data/share/plans/next week.txt"
echo "notes" >/data/share/notes.txt
printf '#!/bin/sh\necho count\n' >/data/share/tools/count.sh
printf '#!/bin/sh\necho old\n' >/data/share/tools/old/count.sh
echo "hunter2" >/data/share/.password
echo "abc" >/data/share/tools/.token
chmod -R 777 /data/share
