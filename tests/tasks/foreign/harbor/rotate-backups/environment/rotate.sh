#!/bin/bash
# Delete all but the newest backups.
keep=$1
folder=$2

cd $folder
for file in $(ls -t *.tar | tail -n +$((keep + 1))); do
    rm $file
done
